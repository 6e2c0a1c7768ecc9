/* A global scalar is an error, and so is what no unary operator stands before. */
BEGIN { x = !plain; }
BEGIN { x = self->a + 1; }
BEGIN { x = !this->b[1]; }
BEGIN { x = !strlen[1]; }
