struct in { int n; };
struct out { int n; char text[80]; char *other; };
translator struct out < struct in *I > { n = I->n; text = execname; };
struct in i;
string s;
BEGIN {
	this->o = xlate <struct out *> (&i);
	trace(sizeof(this->o->text));
	trace(this->o->text); printf("%s", this->o->text); @[this->o->text] = count();
	trace(stringof((char *)this->o->text)); trace((char *)this->o->text == 0);
	trace(this->o->text[1]); trace(*this->o->text);
	s = this->o->text; t = this->o->text; trace(this->o->text == "a"); trace(strlen(this->o->text));
	trace((*this->o).n);
}
