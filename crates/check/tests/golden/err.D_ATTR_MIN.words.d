/* amin: Stable/Stable/Common */
/* version: 1.13 */
/* row stability.amin, pragma.attributes */
#pragma D attributes Evolving/Stable/Common mine
#pragma D attributes Stable/Unstable/Group variable
inline int mine = 3;
inline int plain = 4;
inline int net[uint16_t port] = htons(port);
int variable;
BEGIN { trace(mine); trace(plain); variable = 2; trace(variable); trace(ntohs(3)); trace(net[80]); }
END / htons(arg0) == 4 / { trace(pid); }
