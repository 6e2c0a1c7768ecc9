/* testee N: makes N calls of getppid. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    for (int n = argc > 1 ? atoi(argv[1]) : 0; n > 0; n--)
        syscall(SYS_getppid);
    return 0;
}
