# Laying out records as Arrow buffers. The bytes are copied without the interpreter's lock.

cdef class BinaryOut:
    """The buffers of a binary column in the making, with room for so many fields and bytes."""

    cdef Out validity
    cdef Out offsets
    cdef Out data
    cdef uint8_t* bits
    cdef int32_t* ends
    cdef char* bytes
    cdef int32_t length
    cdef Py_ssize_t nulls

    def __cinit__(self, Py_ssize_t count_max, Py_ssize_t size_max):
        self.validity = Out((count_max + 7) // 8)
        self.offsets = Out((count_max + 1) * 4)
        self.data = Out(size_max)
        self.bits = <uint8_t*>self.validity.data
        self.ends = <int32_t*>self.offsets.data
        self.bytes = self.data.data
        self.ends[0] = 0
        memset(self.bits, 0, (count_max + 7) // 8)

    cdef inline void put(self, Py_ssize_t index, const uint8_t* data, int32_t length) noexcept nogil:
        if length < 0:
            self.nulls += 1
        else:
            self.bits[index >> 3] |= 1 << (index & 7)
            memcpy(self.bytes + self.length, data, length)
            self.length += length
        self.ends[index + 1] = self.length

    cdef finish(self, Py_ssize_t count):
        return BinaryColumn(
            self.nulls,
            self.validity.finish((count + 7) // 8),
            self.offsets.finish((count + 1) * 4),
            self.data.finish(self.length),
        )


cdef class Layout:
    """All columns in the making."""

    cdef int64_t start_offset
    cdef int64_t end_offset
    cdef bint with_headers
    cdef Py_ssize_t count
    cdef Py_ssize_t header_count
    cdef Py_ssize_t header_count_max
    cdef Out offsets
    cdef Out timestamps
    cdef BinaryOut keys
    cdef BinaryOut values
    cdef Out list_offsets
    cdef BinaryOut header_keys
    cdef BinaryOut header_values

    cdef prepare(self, Py_ssize_t count_max, Py_ssize_t header_count_max, Py_ssize_t size_max):
        self.header_count_max = header_count_max
        self.offsets = Out(count_max * 8)
        self.timestamps = Out(count_max * 8)
        self.keys = BinaryOut(count_max, size_max)
        self.values = BinaryOut(count_max, size_max)
        if self.with_headers:
            self.list_offsets = Out((count_max + 1) * 4)
            (<int32_t*>self.list_offsets.data)[0] = 0
            self.header_keys = BinaryOut(header_count_max, size_max)
            self.header_values = BinaryOut(header_count_max, size_max)

    cdef int put(self, Cursor* at, int64_t count, int64_t base_offset, int64_t timestamp, bint fixed) noexcept nogil:
        """Lay out one body; returns the problem, if any."""
        cdef Fields record
        cdef int problem
        cdef int64_t index, offset
        record.offset_delta = -1
        for index in range(count):
            problem = read_record(at, record.offset_delta, &record)
            if problem != SOUND:
                return problem
            offset = add(base_offset, record.offset_delta)
            if offset < self.start_offset or offset >= self.end_offset:
                continue
            (<int64_t*>self.offsets.data)[self.count] = offset
            (<int64_t*>self.timestamps.data)[self.count] = timestamp if fixed else add(timestamp, record.timestamp_delta)
            self.keys.put(self.count, at.data + record.key_start, record.key_length)
            self.values.put(self.count, at.data + record.value_start, record.value_length)
            self.count += 1
            if self.with_headers:
                problem = self.put_headers(at, &record)
                if problem != SOUND:
                    return problem
                (<int32_t*>self.list_offsets.data)[self.count] = <int32_t>self.header_count
        return check_end(at)

    cdef int put_headers(self, const Cursor* at, const Fields* record) noexcept nogil:
        cdef Cursor inner = at[0]
        cdef Header header
        cdef int32_t index
        cdef int problem
        inner.position = record.headers_start
        # The room was counted before; a buffer that another thread changes since then must not get past it.
        if record.header_count > self.header_count_max - self.header_count:
            return HEADER_COUNT
        for index in range(record.header_count):
            problem = read_header(&inner, record.end, &header)
            if problem != SOUND:
                return problem
            self.header_keys.put(self.header_count, at.data + header.key_start, header.key_length)
            self.header_values.put(self.header_count, at.data + header.value_start, header.value_length)
            self.header_count += 1
        return SOUND

    cdef finish(self):
        headers = None
        if self.with_headers:
            headers = HeaderColumns(
                self.header_count,
                self.list_offsets.finish((self.count + 1) * 4),
                self.header_keys.finish(self.header_count),
                self.header_values.finish(self.header_count),
            )
        return Columns(
            self.count,
            self.offsets.finish(self.count * 8),
            self.timestamps.finish(self.count * 8),
            self.keys.finish(self.count),
            self.values.finish(self.count),
            headers,
        )


cdef Py_ssize_t count_headers(Cursor* at, int64_t count) except -1:
    cdef Fields record
    cdef int64_t index
    cdef Py_ssize_t total = 0
    record.offset_delta = -1
    for index in range(count):
        check(read_record(at, record.offset_delta, &record), at)
        total += record.header_count
    check(check_end(at), at)
    at.position = 0
    return total


def columns(bodies, int64_t start_offset=0, int64_t end_offset=0x7FFFFFFFFFFFFFFF, *, bint headers=False):
    cdef Layout layout = Layout()
    cdef Body source
    cdef Py_ssize_t size = 0, count = 0, header_count = 0
    cdef int64_t body_count, base_offset, timestamp
    cdef bint fixed
    cdef int problem
    cdef list sources = []
    size = sum([len(body[0]) for body in bodies])
    if size > BODY_SIZE_MAX:
        raise ValueError(f"one call lays out at most {_BODY_SIZE_MAX} bytes of records")
    for body, body_count, _, _, _ in bodies:
        source = Body(body)
        check(check_count(&source.at, body_count), &source.at)
        count += body_count
        if headers:
            header_count += count_headers(&source.at, body_count)
        sources.append(source)
    layout.start_offset = start_offset
    layout.end_offset = end_offset
    layout.with_headers = headers
    layout.prepare(count, header_count, size)
    for source, (_, body_count, base_offset, base_timestamp, fixed_timestamp) in zip(sources, bodies):
        fixed = fixed_timestamp is not None
        timestamp = fixed_timestamp if fixed else base_timestamp
        with nogil:
            problem = layout.put(&source.at, body_count, base_offset, timestamp, fixed)
        check(problem, &source.at)
    return layout.finish()
