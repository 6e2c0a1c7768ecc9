//! The conditions that the key of a row sets.

use crate::cells;
use crate::model::{Panel, Row};

/// A narrower question: the same program, where an aggregation gets only what has these values.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Narrowing {
    /// The aggregation, with its `@`.
    pub aggregation: String,
    /// An expression of D: the condition.
    pub condition: String,
}

impl Narrowing {
    /// What a row sets. An error is why it sets nothing, as a message.
    pub(crate) fn of(panel: &Panel, row: &Row) -> Result<Narrowing, String> {
        if panel.columns.is_empty() {
            return Err(format!("{} has no key that could be chosen", panel.name));
        }
        if panel.columns.iter().any(String::is_empty) {
            return Err(format!("the clauses that aggregate into {} have different keys", panel.name));
        }
        let columns = panel.columns.iter().zip(&row.key);
        let conditions: Vec<String> =
            columns.filter_map(|(column, value)| cells::condition(column, value)).collect();
        if conditions.is_empty() {
            return Err("no column of the key is a number or a string".into());
        }
        Ok(Narrowing { aggregation: panel.name.clone(), condition: conditions.join(" && ") })
    }
}
