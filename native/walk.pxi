# Reading records: how far a body was read, what one record holds, and what can be wrong with it.

cdef enum:
    RECORD_SIZE_MIN = 7
    BODY_SIZE_MAX = 0x7FFFFFFF

cdef int64_t BASE_OFFSET_MAX = _BASE_OFFSET_MAX

# Positions in the twin's list of reasons.
cdef enum:
    NUMBER_CUT
    NUMBER_LONG
    FIELD_PAST_END
    RECORD_PAST_END
    RECORD_SHORT
    RECORD_LONG
    HEADER_COUNT
    HEADER_KEY
    OFFSET_ORDER
    KEY_MISSING
    BYTES_LEFT
    RECORD_COUNT

cdef enum:
    SOUND = -1

ctypedef struct Cursor:
    # A body and how far it was read; after a failure `position` is where it happened.
    const uint8_t* data
    Py_ssize_t size
    Py_ssize_t position

ctypedef struct Fields:
    Py_ssize_t start
    Py_ssize_t length_end
    Py_ssize_t timestamp_end
    int64_t timestamp_delta
    int32_t offset_delta
    Py_ssize_t key_start
    int32_t key_length
    Py_ssize_t value_start
    int32_t value_length
    int32_t header_count
    Py_ssize_t headers_start
    Py_ssize_t end

ctypedef struct Header:
    Py_ssize_t key_start
    int32_t key_length
    Py_ssize_t value_start
    int32_t value_length


cdef inline int read_varint(Cursor* at, Py_ssize_t end, int32_t* value) noexcept nogil:
    cdef uint32_t result = 0
    cdef uint32_t byte
    cdef int shift = 0
    while True:
        if at.position >= end:
            return NUMBER_CUT
        byte = at.data[at.position]
        at.position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= 32:
            return NUMBER_LONG
    value[0] = <int32_t>((result >> 1) ^ (0 - (result & 1)))
    return SOUND


cdef inline int read_varlong(Cursor* at, Py_ssize_t end, int64_t* value) noexcept nogil:
    cdef uint64_t result = 0
    cdef uint64_t byte
    cdef int shift = 0
    while True:
        if at.position >= end:
            return NUMBER_CUT
        byte = at.data[at.position]
        at.position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= 64:
            return NUMBER_LONG
    value[0] = <int64_t>((result >> 1) ^ (0 - (result & 1)))
    return SOUND


cdef inline int read_field(Cursor* at, Py_ssize_t end, Py_ssize_t* start, int32_t* length) noexcept nogil:
    cdef int problem = read_varint(at, end, length)
    if problem != SOUND:
        return problem
    if length[0] > end - at.position:
        return FIELD_PAST_END
    start[0] = at.position
    if length[0] > 0:
        at.position += length[0]
    return SOUND


cdef inline int read_header(Cursor* at, Py_ssize_t end, Header* header) noexcept nogil:
    cdef int problem = read_field(at, end, &header.key_start, &header.key_length)
    if problem != SOUND:
        return problem
    if header.key_length < 0:
        return HEADER_KEY
    return read_field(at, end, &header.value_start, &header.value_length)


cdef int read_headers(Cursor* at, Fields* record) noexcept nogil:
    cdef Header header
    cdef int32_t index
    cdef int problem
    if record.header_count < 0 or <int64_t>record.header_count * 2 > record.end - at.position:
        return HEADER_COUNT
    for index in range(record.header_count):
        problem = read_header(at, record.end, &header)
        if problem != SOUND:
            return problem
    return SOUND


cdef inline int read_record(Cursor* at, int32_t previous_delta, Fields* record) noexcept nogil:
    cdef int32_t length = 0
    cdef int problem
    record.start = at.position
    problem = read_varint(at, at.size, &length)
    if problem != SOUND:
        return problem
    if length > at.size - at.position:
        return RECORD_PAST_END
    if length < RECORD_SIZE_MIN - 1:
        return RECORD_SHORT
    record.length_end = at.position
    record.end = at.position + length
    at.position += 1
    problem = read_varlong(at, record.end, &record.timestamp_delta)
    if problem != SOUND:
        return problem
    record.timestamp_end = at.position
    problem = read_varint(at, record.end, &record.offset_delta)
    if problem != SOUND:
        return problem
    if record.offset_delta <= previous_delta:
        return OFFSET_ORDER
    problem = read_field(at, record.end, &record.key_start, &record.key_length)
    if problem != SOUND:
        return problem
    problem = read_field(at, record.end, &record.value_start, &record.value_length)
    if problem != SOUND:
        return problem
    problem = read_varint(at, record.end, &record.header_count)
    if problem != SOUND:
        return problem
    record.headers_start = at.position
    if record.header_count != 0:
        problem = read_headers(at, record)
        if problem != SOUND:
            return problem
    return SOUND if at.position == record.end else RECORD_LONG


cdef inline int check_count(const Cursor* at, int64_t count) noexcept nogil:
    return RECORD_COUNT if count < 0 or count > at.size // RECORD_SIZE_MIN else SOUND


cdef inline int check_end(const Cursor* at) noexcept nogil:
    return SOUND if at.position == at.size else BYTES_LEFT


cdef inline int check(int problem, const Cursor* at) except -1:
    """Raise for a problem; the way every walk ends."""
    if problem != SOUND:
        raise InvalidRecords(f"{REASONS[problem]} (byte {at.position} of the records)")
    return 0


cdef inline int64_t add(int64_t base, int64_t delta) noexcept nogil:
    """Sums wrap around like Kafka's."""
    return <int64_t>(<uint64_t>base + <uint64_t>delta)


cdef class Body:
    """Holds on to a buffer while it is walked."""

    cdef Py_buffer buffer
    cdef bint held
    cdef Cursor at

    def __cinit__(self, data):
        PyObject_GetBuffer(data, &self.buffer, PyBUF_SIMPLE)
        self.held = True
        if self.buffer.len > BODY_SIZE_MAX:
            raise InvalidRecords(f"a batch holds at most {_BODY_SIZE_MAX} bytes of records")
        self.at.data = <const uint8_t*>self.buffer.buf
        self.at.size = self.buffer.len
        self.at.position = 0

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.buffer)


cdef class Out:
    """A bytes object in the making: room for `size_max`, cut to what was written in the end."""

    cdef PyObject* value
    cdef char* data

    def __cinit__(self, Py_ssize_t size_max):
        self.value = new_bytes(NULL, size_max)
        self.data = bytes_data(self.value)

    def __dealloc__(self):
        Py_XDECREF(self.value)

    cdef bytes finish(self, Py_ssize_t size):
        _PyBytes_Resize(&self.value, size)
        return <bytes>self.value
