//! The public library: a session, from program to results. Knows no command line.
