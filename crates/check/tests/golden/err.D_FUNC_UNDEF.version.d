/* version: 1.1 */
/* row pragma.binding, stability.version */
#pragma D binding "1.2" young
#pragma D binding "1.1" old
inline int young = 3;
int old;
BEGIN { @ = stddev(3); trace(ucaller); trace(young); old = 1; }
