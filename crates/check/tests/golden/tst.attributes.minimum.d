/* The attributes of a clause are the minimum over what it uses. A pragma sets those of an inline. */
#pragma D attributes Stable/Stable/Common covered
inline int covered = htons(1);
inline int uncovered = htons(1) + pid;
#pragma D attributes Private/Evolving/ISA own
#pragma D binding "1.0" own
#pragma D binding "1.5" translator
int own;
BEGIN { trace(pid); }
BEGIN { trace(covered); }
BEGIN { trace(uncovered); }
BEGIN { own = 1; trace(own + htons(3)); }
