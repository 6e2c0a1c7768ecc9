BEGIN { trace(1); }
}
