/* script */
inline int fd = args[0];
