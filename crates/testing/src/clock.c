/* Is loaded into a server before the C library, and moves the time that the system tells it. Clocks that
   only measure how much time has passed stay as they are. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* The seconds, in a file that the test writes. It is mapped, as a server asks a million times a second. */
static int64_t shift(void)
{
    static const volatile int64_t *seconds;
    static const int64_t none;
    if (!seconds) {
        const char *path = getenv("TOLLGATE_CLOCK");
        int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        void *at = file < 0 ? MAP_FAILED : mmap(0, sizeof *seconds, PROT_READ, MAP_SHARED, file, 0);
        if (file >= 0)
            close(file);
        seconds = at == MAP_FAILED ? &none : at;
    }
    return *seconds;
}

int clock_gettime(clockid_t id, struct timespec *now)
{
    long failed = syscall(SYS_clock_gettime, id, now);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        now->tv_sec += shift();
    return (int)failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at)
{
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (at)
        *at = exact.tv_sec;
    return exact.tv_sec;
}
