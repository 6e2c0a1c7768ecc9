BEGIN { trunc(@nothing, 5); }
