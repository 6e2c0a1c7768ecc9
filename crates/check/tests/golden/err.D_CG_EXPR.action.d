/* row expression.action-in-expression */
BEGIN { x = trace(1); }
END { y = 1 + count(); }
/* row expression.action-in-expression */
