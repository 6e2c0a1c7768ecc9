pid7:prog:take:entry, pid8:prog:take:entry
{
	trace(args[0]->next->id);
	trace(stringof(args[0]->name));
	trace(((struct a.out`conn *)arg0)->next->next->id);
	trace(a.out`head->id);
	trace(sizeof (struct pid7`a.out`conn));
}
