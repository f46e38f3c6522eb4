/* Notes what a process does to the files below one directory, and stops it where the power is cut.
 *
 * Loaded with LD_PRELOAD. Environment:
 *   POWER_ROOT     the directory, an absolute path without links
 *   POWER_JOURNAL  the file to which every operation is appended, see journal.py
 *   POWER_SWITCH   a file of 32 bytes that is shared with the test: whether the power is cut, after how many further
 *                  operations it will be, how many operations are under way, and whether the test is over
 *   POWER_BOOT_ID  the file that is read in place of the kernel's boot id
 *   POWER_SYNC_US  how long a sync takes at least
 *
 * A change is noted while it is made, under one lock, so the journal has changes in their order. A sync is noted when it
 * starts and when it is done: it covers what was noted before it started. Whoever touches the disk after the cut waits
 * there to be killed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CREATE = 1, WRITE, TRUNCATE, EXTEND, MAKE_DIRECTORY, RENAME, UNLINK, REMOVE_DIRECTORY, SYNC_START, SYNC_END, UNKNOWN };

struct entry {
    uint32_t size;
    uint32_t kind;
    uint64_t inode;
    int64_t number;
    int64_t unused;
};

struct power {
    _Atomic int64_t is_cut;
    _Atomic int64_t operations_left;
    _Atomic int64_t under_way;
    _Atomic int64_t is_over;
};

static const char boot_id_path[] = "/proc/sys/kernel/random/boot_id";
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_length;
static dev_t root_device;
static const char *boot_id;
static int journal = -1;
static long sync_us;
static struct power *power;
static _Atomic int64_t sync_number;

#define REAL(name) ((__typeof__(&name))next(#name, &real_##name))
#define DECLARE(name) static void *real_##name

static void *next(const char *name, void **found) {
    if (*found == NULL)
        *found = dlsym(RTLD_NEXT, name);
    return *found;
}

static void take_lock(void) { pthread_mutex_lock(&lock); }
static void release_lock(void) { pthread_mutex_unlock(&lock); }

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("POWER_ROOT"), *journal_path = getenv("POWER_JOURNAL"), *switch_path = getenv("POWER_SWITCH");
    struct stat found;
    if (path == NULL || journal_path == NULL || switch_path == NULL)
        return;
    boot_id = getenv("POWER_BOOT_ID");
    sync_us = getenv("POWER_SYNC_US") != NULL ? atol(getenv("POWER_SYNC_US")) : 0;
    int shared = (int)syscall(SYS_openat, AT_FDCWD, switch_path, O_RDWR | O_CLOEXEC);
    int low = (int)syscall(SYS_openat, AT_FDCWD, journal_path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (shared < 0 || low < 0 || strlen(path) >= sizeof root || stat(path, &found) != 0) {
        fprintf(stderr, "power: cannot begin\n");
        abort();
    }
    power = mmap(NULL, sizeof *power, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
    close(shared);
    if (power == MAP_FAILED)
        abort();
    /* Out of the way of programs that count on low numbers. */
    journal = fcntl(low, F_DUPFD_CLOEXEC, 900);
    close(low);
    if (journal < 0)
        abort();
    strcpy(root, path);
    root_length = strlen(root);
    root_device = found.st_dev;
    pthread_atfork(take_lock, release_lock, release_lock);
}

static void freeze(void) {
    atomic_fetch_sub(&power->under_way, 1);
    while (!atomic_load(&power->is_over))
        usleep(5000);
    _exit(137);
}

/* Every operation passes here before it takes effect. */
static void enter(void) {
    atomic_fetch_add(&power->under_way, 1);
    if (atomic_load(&power->is_cut))
        freeze();
    if (atomic_fetch_sub(&power->operations_left, 1) <= 0) {
        atomic_store(&power->is_cut, 1);
        freeze();
    }
}

static void leave(void) { atomic_fetch_sub(&power->under_way, 1); }

static void note(uint32_t kind, uint64_t inode, int64_t number, const void *data, size_t size) {
    struct entry entry = {(uint32_t)size, kind, inode, number, 0};
    struct iovec parts[2] = {{&entry, sizeof entry}, {(void *)data, size}};
    int saved = errno;
    if (syscall(SYS_writev, journal, parts, 2) != (long)(sizeof entry + size)) {
        fprintf(stderr, "power: the journal is full\n");
        abort();
    }
    errno = saved;
}

/* The absolute path without links of what a call names, in `found`; 0 where it is not below the directory. */
static int below_root(int directory, const char *path, char *found) {
    char joined[PATH_MAX], parent[PATH_MAX];
    int saved = errno;
    int length;
    if (journal < 0 || path == NULL || *path == '\0')
        return 0;
    if (*path == '/') {
        length = snprintf(joined, sizeof joined, "%s", path);
    } else if (directory == AT_FDCWD) {
        if (getcwd(parent, sizeof parent) == NULL)
            goto no;
        length = snprintf(joined, sizeof joined, "%s/%s", parent, path);
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        ssize_t size = readlink(link, parent, sizeof parent - 1);
        if (size < 0)
            goto no;
        parent[size] = '\0';
        length = snprintf(joined, sizeof joined, "%s/%s", parent, path);
    }
    if (length < 0 || length >= (int)sizeof joined)
        goto no;
    while (length > 1 && joined[length - 1] == '/')
        joined[--length] = '\0';
    char *name = strrchr(joined, '/');
    *name++ = '\0';
    if (realpath(*joined == '\0' ? "/" : joined, parent) == NULL)
        goto no;
    if (snprintf(found, PATH_MAX, "%s/%s", parent, name) >= PATH_MAX)
        goto no;
    errno = saved;
    return strncmp(found, root, root_length) == 0 && (found[root_length] == '/' || found[root_length] == '\0');
no:
    errno = saved;
    return 0;
}

/* The inode of a file that may be below the directory; 0 where it certainly is not. */
static uint64_t inode_of(int descriptor, mode_t kind) {
    struct stat found;
    int saved = errno;
    uint64_t inode = 0;
    if (journal >= 0 && fstat(descriptor, &found) == 0 && found.st_dev == root_device && (found.st_mode & S_IFMT) == kind)
        inode = found.st_ino;
    errno = saved;
    return inode;
}

static uint64_t inode_at(const char *path) {
    struct stat found;
    int saved = errno;
    uint64_t inode = lstat(path, &found) == 0 ? found.st_ino : 0;
    errno = saved;
    return inode;
}

DECLARE(openat64);

static int opened(int directory, const char *path, int flags, mode_t mode) {
    char found[PATH_MAX];
    int (*call)(int, const char *, int, ...) = REAL(openat64);
    if (boot_id != NULL && path != NULL && strcmp(path, boot_id_path) == 0)
        return call(directory, boot_id, flags, mode);
    if (!(flags & (O_CREAT | O_TRUNC)) || !below_root(directory, path, found))
        return call(directory, path, flags, mode);
    enter();
    take_lock();
    int existed = inode_at(found) != 0;
    int descriptor = call(directory, path, flags, mode);
    if (descriptor >= 0) {
        uint64_t inode = inode_of(descriptor, S_IFREG);
        if (!existed)
            note(CREATE, inode, 0, found, strlen(found));
        else if (flags & O_TRUNC)
            note(TRUNCATE, inode, 0, NULL, 0);
    }
    release_lock();
    leave();
    return descriptor;
}

#define MODE(flags, last) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, last); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

int open(const char *path, int flags, ...) { MODE(flags, flags) return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags, flags) return opened(AT_FDCWD, path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE(flags, flags) return opened(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE(flags, flags) return opened(at, path, flags, mode); }
int creat(const char *path, mode_t mode) { return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

/* A write at `position`, or where the file stands if that is negative. */
static void note_parts(uint64_t inode, int descriptor, const struct iovec *parts, int count, ssize_t written, off_t position) {
    if (position < 0)
        position = lseek(descriptor, 0, SEEK_CUR) - written;
    for (int index = 0; index < count && written > 0; index++) {
        size_t size = parts[index].iov_len < (size_t)written ? parts[index].iov_len : (size_t)written;
        note(WRITE, inode, position, parts[index].iov_base, size);
        position += (off_t)size;
        written -= (ssize_t)size;
    }
}

#define CHANGE(inode, result, made, noted) \
    enter(); \
    take_lock(); \
    result = made; \
    if (result >= 0) \
        noted; \
    release_lock(); \
    leave();

#define WRITING(made, parts, count, position) \
    uint64_t inode = inode_of(descriptor, S_IFREG); \
    ssize_t written; \
    if (inode == 0) \
        return made; \
    CHANGE(inode, written, made, note_parts(inode, descriptor, parts, count, written, position)) \
    return written;

#define ONE(data, size) (&(struct iovec){(void *)(data), size})

DECLARE(write);
ssize_t write(int descriptor, const void *data, size_t size) {
    WRITING(REAL(write)(descriptor, data, size), ONE(data, size), 1, -1)
}

DECLARE(pwrite64);
static ssize_t written_at(int descriptor, const void *data, size_t size, off_t position) {
    WRITING(REAL(pwrite64)(descriptor, data, size, position), ONE(data, size), 1, position)
}
ssize_t pwrite(int descriptor, const void *data, size_t size, off_t position) {
    return written_at(descriptor, data, size, position);
}
ssize_t pwrite64(int descriptor, const void *data, size_t size, off_t position) {
    return written_at(descriptor, data, size, position);
}

DECLARE(writev);
ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    WRITING(REAL(writev)(descriptor, parts, count), parts, count, -1)
}

DECLARE(pwritev64);
static ssize_t parts_written_at(int descriptor, const struct iovec *parts, int count, off_t position) {
    WRITING(REAL(pwritev64)(descriptor, parts, count, position), parts, count, position)
}
ssize_t pwritev(int descriptor, const struct iovec *parts, int count, off_t position) {
    return parts_written_at(descriptor, parts, count, position);
}
ssize_t pwritev64(int descriptor, const struct iovec *parts, int count, off_t position) {
    return parts_written_at(descriptor, parts, count, position);
}

DECLARE(pwritev64v2);
static ssize_t parts_written_with(int descriptor, const struct iovec *parts, int count, off_t position, int flags) {
    WRITING(REAL(pwritev64v2)(descriptor, parts, count, position, flags), parts, count, position)
}
ssize_t pwritev2(int descriptor, const struct iovec *parts, int count, off_t position, int flags) {
    return parts_written_with(descriptor, parts, count, position, flags);
}
ssize_t pwritev64v2(int descriptor, const struct iovec *parts, int count, off_t position, int flags) {
    return parts_written_with(descriptor, parts, count, position, flags);
}

DECLARE(ftruncate64);
static int truncated(int descriptor, off_t size) {
    uint64_t inode = inode_of(descriptor, S_IFREG);
    int result;
    if (inode == 0)
        return REAL(ftruncate64)(descriptor, size);
    CHANGE(inode, result, REAL(ftruncate64)(descriptor, size), note(TRUNCATE, inode, size, NULL, 0))
    return result;
}
int ftruncate(int descriptor, off_t size) { return truncated(descriptor, size); }
int ftruncate64(int descriptor, off_t size) { return truncated(descriptor, size); }

DECLARE(truncate64);
static int path_truncated(const char *path, off_t size) {
    char found[PATH_MAX];
    int result;
    if (!below_root(AT_FDCWD, path, found))
        return REAL(truncate64)(path, size);
    CHANGE(0, result, REAL(truncate64)(path, size), note(TRUNCATE, inode_at(found), size, NULL, 0))
    return result;
}
int truncate(const char *path, off_t size) { return path_truncated(path, size); }
int truncate64(const char *path, off_t size) { return path_truncated(path, size); }

DECLARE(posix_fallocate64);
static int reserved(int descriptor, off_t position, off_t size) {
    uint64_t inode = inode_of(descriptor, S_IFREG);
    if (inode == 0)
        return REAL(posix_fallocate64)(descriptor, position, size);
    enter();
    take_lock();
    int error = REAL(posix_fallocate64)(descriptor, position, size);
    if (error == 0)
        note(EXTEND, inode, position + size, NULL, 0);
    release_lock();
    leave();
    return error;
}
int posix_fallocate(int descriptor, off_t position, off_t size) { return reserved(descriptor, position, size); }
int posix_fallocate64(int descriptor, off_t position, off_t size) { return reserved(descriptor, position, size); }

DECLARE(fallocate64);
static int allocated(int descriptor, int mode, off_t position, off_t size) {
    uint64_t inode = inode_of(descriptor, S_IFREG);
    int result;
    if (inode == 0)
        return REAL(fallocate64)(descriptor, mode, position, size);
    CHANGE(inode, result, REAL(fallocate64)(descriptor, mode, position, size),
           mode == 0 ? note(EXTEND, inode, position + size, NULL, 0) : note(UNKNOWN, inode, mode, "fallocate", 9))
    return result;
}
int fallocate(int descriptor, int mode, off_t position, off_t size) { return allocated(descriptor, mode, position, size); }
int fallocate64(int descriptor, int mode, off_t position, off_t size) { return allocated(descriptor, mode, position, size); }

DECLARE(mkdirat);
int mkdirat(int at, const char *path, mode_t mode) {
    char found[PATH_MAX];
    int result;
    if (!below_root(at, path, found))
        return REAL(mkdirat)(at, path, mode);
    CHANGE(0, result, REAL(mkdirat)(at, path, mode), note(MAKE_DIRECTORY, inode_at(found), 0, found, strlen(found)))
    return result;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

DECLARE(unlinkat);
int unlinkat(int at, const char *path, int flags) {
    char found[PATH_MAX];
    int result;
    if (!below_root(at, path, found))
        return REAL(unlinkat)(at, path, flags);
    CHANGE(0, result, REAL(unlinkat)(at, path, flags),
           note(flags & AT_REMOVEDIR ? REMOVE_DIRECTORY : UNLINK, 0, 0, found, strlen(found)))
    return result;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

static void note_rename(const char *source, const char *target) {
    char both[2 * PATH_MAX];
    size_t length = strlen(source);
    memcpy(both, source, length + 1);
    strcpy(both + length + 1, target);
    note(RENAME, 0, 0, both, length + 1 + strlen(target));
}

DECLARE(renameat2);
int renameat2(int from, const char *source, int to, const char *target, unsigned int flags) {
    char found_source[PATH_MAX], found_target[PATH_MAX];
    int result;
    int is_source = below_root(from, source, found_source), is_target = below_root(to, target, found_target);
    if (!is_source && !is_target)
        return REAL(renameat2)(from, source, to, target, flags);
    CHANGE(0, result, REAL(renameat2)(from, source, to, target, flags),
           is_source && is_target && (flags & ~RENAME_NOREPLACE) == 0 ? note_rename(found_source, found_target)
                                                                       : note(UNKNOWN, 0, 0, "rename", 6))
    return result;
}
int renameat(int from, const char *source, int to, const char *target) { return renameat2(from, source, to, target, 0); }
int rename(const char *source, const char *target) { return renameat2(AT_FDCWD, source, AT_FDCWD, target, 0); }

DECLARE(linkat);
int linkat(int from, const char *source, int to, const char *target, int flags) {
    char found[PATH_MAX];
    int result;
    if (!below_root(to, target, found))
        return REAL(linkat)(from, source, to, target, flags);
    CHANGE(0, result, REAL(linkat)(from, source, to, target, flags), note(UNKNOWN, 0, 0, "link", 4))
    return result;
}
int link(const char *source, const char *target) { return linkat(AT_FDCWD, source, AT_FDCWD, target, 0); }

static int synced(int descriptor, int (*call)(int)) {
    uint64_t inode = inode_of(descriptor, S_IFREG);
    if (inode == 0)
        inode = inode_of(descriptor, S_IFDIR);
    if (inode == 0)
        return call(descriptor);
    enter();
    int64_t number = ((int64_t)getpid() << 32) + atomic_fetch_add(&sync_number, 1);
    take_lock();
    note(SYNC_START, inode, number, NULL, 0);
    release_lock();
    int result = call(descriptor);
    if (sync_us > 0) {
        int saved = errno;
        usleep((useconds_t)sync_us);
        errno = saved;
    }
    if (result == 0) {
        take_lock();
        note(SYNC_END, inode, number, NULL, 0);
        release_lock();
    }
    leave();
    return result;
}

DECLARE(fsync);
DECLARE(fdatasync);
int fsync(int descriptor) { return synced(descriptor, REAL(fsync)); }
int fdatasync(int descriptor) { return synced(descriptor, REAL(fdatasync)); }
