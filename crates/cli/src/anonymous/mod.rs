//! Anonymous tracing: what is traced from the boot on, before anybody can log in.
//!
//! ```text
//!  dtrace -A …           store     /etc/dtrace/anonymous.d/enabling: the words and the texts of the programs
//!                                  dtrace-anonymous.service, and with -x initramfs the hook
//!  initramfs             start     begins it, and leads it to the root
//!                        boots     unless it is disabled
//!  boot                  boot      dtrace --anonymous compiles on the kernel that runs, and traces
//!                        spool     its events: /run/dtrace/anonymous/log, then /var/lib/dtrace/anonymous/log
//!  dtrace -a             claim     gets them at /run/dtrace/anonymous/socket, and what comes; ends the session
//!  shutdown              spool     what nobody claimed: /var/lib/dtrace/anonymous/events, for a later -a
//!                        recordings  the files of both directories; head, which version made one, and the wall clock
//! ```
//!
//! The stored enabling has no compiled program: types, symbols and system calls are those of the
//! kernel that boots. What was recorded are events, which need nothing of the machine that they
//! were recorded on, so names of processes that are gone are in them.

pub(crate) mod boot;
pub(crate) mod boots;
pub(crate) mod claim;
pub(crate) mod clock;
pub(crate) mod head;
pub(crate) mod initramfs;
pub(crate) mod log;
pub(crate) mod place;
pub(crate) mod recordings;
pub(crate) mod spool;
pub(crate) mod start;
pub(crate) mod state;
pub(crate) mod store;
pub(crate) mod words;
