BEGIN { trace("clauses mean nothing here"); }
