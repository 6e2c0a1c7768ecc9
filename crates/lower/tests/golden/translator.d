struct in { int a; struct in *next; };
struct out { int twice; };
translator struct out < struct in *I > { twice = I->a + I->a; };
BEGIN { self->p = xlate <struct out *> (((struct in *)arg0)->next); trace(self->p->twice); trace(xlate <struct out> (((struct in *)arg0)->next).twice); }
