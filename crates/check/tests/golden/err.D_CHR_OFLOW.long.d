BEGIN { trace('123456789'); trace('12345678'); }
