string g;
self string t;
string a[int];
struct named { int n; string name; };
struct named v;
BEGIN {
	this->s = "abc";
	this->s[1] = 65;
	this->s[arg0] += 1;
	*this->s = 'x';
	*(this->s + 2) = 'z';
	(this->s + 1)[1]--;
	g[3] = 0;
	self->t[0]++;
	a[1][2] = 'q';
	v.name[1] = 'n';
	v.name[arg0] = 'm';
	trace(this->s[1] = 300);
}
