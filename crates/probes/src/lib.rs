//! What a probe is: names, globs, descriptions, signatures. Does not know how a probe attaches.
