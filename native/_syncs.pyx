# cython: language_level=3
"""Threads that sync files and never need the interpreter.

A thread of Python's would need it twice for each sync, to begin and to tell that it is done, and would wait for it both
times while the event loop is busy. These begin at once, and tell by a byte in a pipe.
"""

from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc
from posix.unistd cimport fdatasync, write

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_attr_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef unsigned long pthread_t
    int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*) noexcept nogil, void* argument)
    int pthread_join(pthread_t thread, void** result)
    int pthread_mutex_init(pthread_mutex_t* mutex, void* attributes)
    int pthread_mutex_lock(pthread_mutex_t* mutex)
    int pthread_mutex_unlock(pthread_mutex_t* mutex)
    int pthread_cond_init(pthread_cond_t* condition, void* attributes)
    int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex)
    int pthread_cond_signal(pthread_cond_t* condition)
    int pthread_cond_broadcast(pthread_cond_t* condition)

cdef struct Sync:
    int descriptor
    int error
    int64_t number
    Sync* next

cdef struct Shared:
    pthread_mutex_t mutex
    pthread_cond_t changed
    Sync* first
    Sync* last
    Sync* finished
    int wake_descriptor
    bint is_closing


cdef void* work(void* argument) noexcept nogil:
    cdef Shared* shared = <Shared*>argument
    cdef Sync* sync
    cdef bint is_first
    while True:
        pthread_mutex_lock(&shared.mutex)
        while shared.first == NULL and not shared.is_closing:
            pthread_cond_wait(&shared.changed, &shared.mutex)
        sync = shared.first
        if sync == NULL:
            pthread_mutex_unlock(&shared.mutex)
            return NULL
        shared.first = sync.next
        pthread_mutex_unlock(&shared.mutex)
        sync.error = 0
        while fdatasync(sync.descriptor) != 0:
            if errno != EINTR:
                sync.error = errno
                break
        pthread_mutex_lock(&shared.mutex)
        is_first = shared.finished == NULL
        sync.next = shared.finished
        shared.finished = sync
        pthread_mutex_unlock(&shared.mutex)
        if is_first:
            # A full pipe has woken the reader already.
            write(shared.wake_descriptor, "!", 1)


cdef class SyncPool:
    """Threads that sync. The reader of `wake_descriptor`'s other end calls `take` when a byte comes."""

    cdef Shared* _shared
    cdef pthread_t* _threads
    cdef int _count

    def __cinit__(self, int thread_count, int wake_descriptor):
        self._shared = <Shared*>calloc(1, sizeof(Shared))
        self._threads = <pthread_t*>calloc(thread_count, sizeof(pthread_t))
        if self._shared == NULL or self._threads == NULL:
            raise MemoryError
        self._shared.wake_descriptor = wake_descriptor
        pthread_mutex_init(&self._shared.mutex, NULL)
        pthread_cond_init(&self._shared.changed, NULL)
        while self._count < thread_count:
            if pthread_create(&self._threads[self._count], NULL, work, self._shared) != 0:
                break
            self._count += 1
        if self._count == 0:
            raise OSError("no thread for syncs could be started")

    def submit(self, int descriptor, int64_t number):
        """Have a file synced, which stays open until `take` has returned the number."""
        cdef Sync* sync = <Sync*>malloc(sizeof(Sync))
        if sync == NULL:
            raise MemoryError
        sync.descriptor = descriptor
        sync.number = number
        sync.next = NULL
        pthread_mutex_lock(&self._shared.mutex)
        if self._shared.first == NULL:
            self._shared.first = sync
        else:
            self._shared.last.next = sync
        self._shared.last = sync
        pthread_cond_signal(&self._shared.changed)
        pthread_mutex_unlock(&self._shared.mutex)

    def take(self):
        """The syncs that have finished, each as its number and errno, which is 0 if all went well."""
        cdef Sync* sync
        cdef Sync* after
        pthread_mutex_lock(&self._shared.mutex)
        sync = self._shared.finished
        self._shared.finished = NULL
        pthread_mutex_unlock(&self._shared.mutex)
        finished = []
        while sync != NULL:
            finished.append((sync.number, sync.error))
            after = sync.next
            free(sync)
            sync = after
        return finished

    def close(self):
        """Return when everything that was submitted is done, and the threads have ended."""
        cdef int index
        with nogil:
            pthread_mutex_lock(&self._shared.mutex)
            self._shared.is_closing = True
            pthread_cond_broadcast(&self._shared.changed)
            pthread_mutex_unlock(&self._shared.mutex)
            for index in range(self._count):
                pthread_join(self._threads[index], NULL)
            self._count = 0

    def __dealloc__(self):
        # Threads that were not told to end may still use it.
        if self._count == 0 and self._shared != NULL:
            free(self._shared)
            free(self._threads)
