# The map from keys to offsets that compaction goes by.

ctypedef struct Hash:
    uint64_t low
    uint64_t high

ctypedef struct Slot:
    Hash hash
    # The offset plus one, so that fresh memory means an empty slot.
    int64_t offset_after


cdef inline uint64_t rotate(uint64_t value, int bits) noexcept nogil:
    return (value << bits) | (value >> (64 - bits))


cdef inline void mix(uint64_t* v) noexcept nogil:
    v[0] += v[1]
    v[1] = rotate(v[1], 13) ^ v[0]
    v[0] = rotate(v[0], 32)
    v[2] += v[3]
    v[3] = rotate(v[3], 16) ^ v[2]
    v[0] += v[3]
    v[3] = rotate(v[3], 21) ^ v[0]
    v[2] += v[1]
    v[1] = rotate(v[1], 17) ^ v[2]
    v[2] = rotate(v[2], 32)


cdef Hash siphash(const Hash* seed, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """SipHash-2-4 with 128 bits of result: keys that collide cannot be found without the seed."""
    cdef uint64_t v[4]
    cdef uint64_t word = 0
    cdef Hash result
    cdef Py_ssize_t position = 0
    cdef int index
    v[0] = seed.low ^ <uint64_t>0x736F6D6570736575
    v[1] = seed.high ^ <uint64_t>0x646F72616E646F6D ^ 0xEE
    v[2] = seed.low ^ <uint64_t>0x6C7967656E657261
    v[3] = seed.high ^ <uint64_t>0x7465646279746573
    while True:
        if size - position >= 8:
            memcpy(&word, data + position, 8)
        else:
            word = <uint64_t>size << 56
            for index in range(<int>(size - position)):
                word |= <uint64_t>data[position + index] << (8 * index)
        v[3] ^= word
        mix(v)
        mix(v)
        v[0] ^= word
        if size - position < 8:
            break
        position += 8
    v[2] ^= 0xEE
    for index in range(4):
        mix(v)
    result.low = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    for index in range(4):
        mix(v)
    result.high = v[0] ^ v[1] ^ v[2] ^ v[3]
    return result


cdef class OffsetMap:
    """The latest offset of every key, as the twin's; keys are kept as 128-bit hashes in open addressing."""

    cdef readonly Py_ssize_t capacity
    cdef Py_ssize_t size
    cdef Py_ssize_t slot_count
    cdef Slot* slots
    cdef Hash seed

    def __cinit__(self, Py_ssize_t memory_bytes, bytes seed=bytes(16)):
        if len(seed) != 16:
            raise ValueError("the seed has sixteen bytes")
        self.slot_count = memory_bytes // sizeof(Slot)
        self.capacity = self.slot_count * 3 // 4
        if self.capacity < 1:
            raise ValueError(f"{memory_bytes} bytes are too few to hold a key")
        memcpy(&self.seed, PyBytes_AS_STRING(seed), 16)
        self.slots = <Slot*>calloc(self.slot_count, sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError(f"no {memory_bytes} bytes for an offset map")

    def __dealloc__(self):
        free(self.slots)

    def __len__(self):
        return self.size

    cdef inline Slot* find(self, const Hash* wanted) noexcept nogil:
        """The slot of this key, or the empty one where it belongs; a quarter of the slots is always empty."""
        cdef Py_ssize_t index = <Py_ssize_t>(wanted.low % <uint64_t>self.slot_count)
        cdef Slot* slot
        while True:
            slot = &self.slots[index]
            if slot.offset_after == 0 or (slot.hash.low == wanted.low and slot.hash.high == wanted.high):
                return slot
            index += 1
            if index == self.slot_count:
                index = 0

    cdef inline Slot* find_key(self, const Cursor* at, const Fields* record, Hash* hash) noexcept nogil:
        hash[0] = siphash(&self.seed, at.data + record.key_start, record.key_length)
        return self.find(hash)

    def get(self, key):
        cdef Body source = Body(key)
        cdef Hash hash = siphash(&self.seed, source.at.data, source.at.size)
        return self.find(&hash).offset_after - 1

    def add(self, body, int64_t count, int64_t base_offset):
        cdef Body source = Body(body)
        cdef Cursor* at = &source.at
        cdef Fields record
        cdef Slot* slot
        cdef Hash hash
        cdef int64_t index, offset
        check_base_offset(base_offset)
        check_all(at, count)
        if self.size + count > self.capacity:
            return False
        at.position = 0
        record.offset_delta = -1
        for index in range(count):
            read_record(at, record.offset_delta, &record)
            if record.key_length < 0:
                continue
            offset = base_offset + record.offset_delta
            slot = self.find_key(at, &record, &hash)
            if slot.offset_after == 0:
                self.size += 1
                slot.hash = hash
            if offset >= slot.offset_after:
                slot.offset_after = offset + 1
        return True

    def keep(self, body, int64_t count, int64_t base_offset, *, bint drop_tombstones=False):
        cdef Body source = Body(body)
        cdef Cursor* at = &source.at
        cdef Fields record
        cdef Hash hash
        cdef int64_t index
        check_base_offset(base_offset)
        check(check_count(at, count), at)
        cdef Out mask = Out(count)
        record.offset_delta = -1
        for index in range(count):
            check(read_record(at, record.offset_delta, &record), at)
            if record.key_length < 0 or (drop_tombstones and record.value_length < 0):
                mask.data[index] = 0
            else:
                mask.data[index] = (
                    base_offset + record.offset_delta + 1 >= self.find_key(at, &record, &hash).offset_after
                )
        check(check_end(at), at)
        return mask.finish(count)


cdef int check_base_offset(int64_t base_offset) except -1:
    if not 0 <= base_offset <= BASE_OFFSET_MAX:
        raise ValueError(f"{base_offset} is no offset that a batch can start at")
    return 0


cdef int check_all(Cursor* at, int64_t count) except -1:
    cdef Fields record
    cdef int64_t index
    check(check_count(at, count), at)
    record.offset_delta = -1
    for index in range(count):
        check(read_record(at, record.offset_delta, &record), at)
    check(check_end(at), at)
    return 0
