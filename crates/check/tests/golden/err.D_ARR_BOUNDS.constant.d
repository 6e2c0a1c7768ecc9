struct s { int one[1]; int two[2]; struct s *next[4]; };
BEGIN
{
	trace(((struct s *)arg0)->one[1]);
	trace(((struct s *)arg0)->two[2]);
	trace(((struct s *)arg0)->one[-1]);
	trace(curthread->matrix[2][0]); trace(curthread->matrix[1][3]);
	trace(curthread->comm[16]);
	trace(curthread->thread_pid->numbers[5].nr);
}
