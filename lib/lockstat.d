/*
 * Which side of a readers/writer lock.
 */

inline int RW_WRITER = 0;
inline int RW_READER = 1;
