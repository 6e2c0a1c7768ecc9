//! Where `speculate()` and `commit()` may be in a clause.
//!
//! A record is speculative as a whole, so `speculate()` comes before everything that records. The
//! records of a speculation are printed where the clause that commits it would print its own, so
//! that clause has none. What takes effect at once (aggregations, `exit()`, destructive actions)
//! cannot be speculative. Messages and tags are those of the original.

use diagnostics::{Span, Tag};

use crate::program::{Expr, ExprKind, StmtKind};
use crate::session::Checker;
use crate::state::recovery::CheckResult;

fn is_commit(kind: &StmtKind) -> bool {
    matches!(kind, StmtKind::Expr(Expr { kind: ExprKind::Call { name: "commit", .. }, .. }))
}

impl Checker<'_> {
    /// Checks a statement against those before it.
    pub(crate) fn may_follow(&mut self, kind: &StmtKind, destructive: bool, span: Span) -> CheckResult<()> {
        let before = self.clause.speculation;
        let now = &mut self.clause.speculation;
        let mut broken = None;
        let mut rule = |breaks: bool, tag, what: &str, other: &str| {
            if breaks && broken.is_none() {
                broken = Some((tag, format!("{what} may not follow {other}")));
            }
        };
        let (data, commit, speculate) = ("data-recording action(s)", "commit( )", "speculate( )");
        match kind {
            StmtKind::Speculate(_) => {
                rule(before.speculates, Tag::D_SPEC_SPEC, speculate, speculate);
                rule(before.commits, Tag::D_SPEC_COMM, speculate, commit);
                rule(before.records || before.records_effect, Tag::D_SPEC_DREC, speculate, data);
                now.speculates = true;
            }
            _ if is_commit(kind) => {
                rule(before.commits, Tag::D_COMM_COMM, commit, commit);
                rule(before.records, Tag::D_COMM_DREC, commit, data);
                now.commits = true;
            }
            StmtKind::Aggregate { .. } => {
                rule(before.commits, Tag::D_AGG_COMM, "aggregating actions", commit);
                rule(before.speculates, Tag::D_AGG_SPEC, "aggregating actions", speculate);
                now.records = true;
            }
            _ if destructive => {
                rule(before.speculates, Tag::D_ACT_SPEC, "destructive actions", speculate);
                now.records_effect |= matches!(kind, StmtKind::Record(_));
            }
            StmtKind::Record(_) | StmtKind::Exit(..) | StmtKind::Snap(..) => {
                let is_exit = matches!(kind, StmtKind::Exit(..));
                rule(before.speculates && is_exit, Tag::D_EXIT_SPEC, "exit( )", speculate);
                let is_snap = matches!(kind, StmtKind::Snap(..));
                rule(before.speculates && is_snap, Tag::D_ACT_SPEC, "snap( )", speculate);
                rule(before.commits, Tag::D_DREC_COMM, "data-recording actions", commit);
                now.records = true;
            }
            StmtKind::Expr(_) => {}
        }
        match broken {
            Some((tag, message)) => self.fail(tag, span, message),
            None => Ok(()),
        }
    }
}
