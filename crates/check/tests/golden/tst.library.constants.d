/* Identifiers of the D libraries, as values, as sizes, and hidden by a declaration of the program. */
inline int EINTR = 1000;
int B_READ;
syscall::read:return / errno == EAGAIN || arg0 == -EINTR / { trace(SIGKILL + SIGIOT); B_READ = O_RDWR | O_CREAT; }
BEGIN { trace(AF_INET6); trace(SSLEEP); trace(EWOULDBLOCK); trace(B_READ); trace(sizeof (R_PC)); }
