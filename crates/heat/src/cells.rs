//! Counts by interval, key and bucket.

/// The values of a key that fell into a bucket in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) key: u32,
    pub(crate) bucket: u32,
    /// Weights may be negative.
    pub(crate) count: i64,
}

/// An interval: one, or several that were merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// Nanoseconds by the clock of `timestamp`.
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// How many intervals are in it.
    pub(crate) merged: u64,
    /// In the order of keys and buckets.
    pub(crate) cells: Vec<Cell>,
}

impl Column {
    /// Orders what was added, and adds up what is twice.
    pub(crate) fn complete(&mut self) {
        self.cells.sort_unstable_by_key(|cell| (cell.key, cell.bucket));
        self.cells.dedup_by(|next, cell| {
            let same = (next.key, next.bucket) == (cell.key, cell.bucket);
            if same {
                cell.count = cell.count.saturating_add(next.count);
            }
            same
        });
        self.cells.retain(|cell| cell.count != 0);
    }
}

/// The intervals of an aggregation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cells {
    pub(crate) columns: Vec<Column>,
    /// How many intervals a column has at most.
    pub(crate) merged: u64,
}

impl Cells {
    /// How many counts there are. An interval without any counts too.
    pub(crate) fn size(&self) -> usize {
        self.columns.iter().map(|column| column.cells.len() + 2).sum()
    }

    /// The column of an interval, to which rows are added. It has as many intervals as the columns
    /// before it, so that all are equally long. `None`: the interval began before the last one
    /// ended.
    pub(crate) fn column(&mut self, begin: u64, end: u64) -> Option<&mut Column> {
        let most = self.merged.max(1);
        match self.columns.last_mut() {
            // A further part of an interval.
            Some(last) if last.begin <= begin && end <= last.end => {}
            Some(last) if begin < last.end => return None,
            Some(last) if last.merged < most => (last.end, last.merged) = (end, last.merged + 1),
            _ => self.columns.push(Column { begin, end, merged: 1, cells: Vec::new() }),
        }
        self.columns.last_mut()
    }

    /// Makes each two columns one.
    pub(crate) fn coarsen(&mut self) {
        self.merged = self.merged.max(1).saturating_mul(2);
        let mut columns = std::mem::take(&mut self.columns).into_iter();
        while let Some(mut column) = columns.next() {
            if let Some(next) = columns.next() {
                column.end = next.end;
                column.merged += next.merged;
                column.cells.extend(next.cells);
                column.complete();
            }
            column.cells.shrink_to_fit();
            self.columns.push(column);
        }
    }

    /// The first and the last bucket with a count.
    pub(crate) fn buckets(&self) -> Option<(u32, u32)> {
        let all = || self.columns.iter().flat_map(|column| &column.cells).map(|cell| cell.bucket);
        Some((all().min()?, all().max()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(all: &[(u64, u32, u32, i64)]) -> Cells {
        let mut cells = Cells::default();
        for (begin, key, bucket, count) in all {
            let column = cells.column(*begin, begin + 10).unwrap();
            column.cells.push(Cell { key: *key, bucket: *bucket, count: *count });
            column.complete();
        }
        cells
    }

    #[test]
    fn two_columns_become_one_with_the_sum_of_their_counts() {
        let mut all = cells(&[(0, 1, 5, 2), (0, 0, 9, 1), (10, 1, 5, 3), (20, 0, 1, -4)]);
        all.coarsen();
        let cell = |key, bucket, count| Cell { key, bucket, count };
        let expected = [
            Column { begin: 0, end: 20, merged: 2, cells: vec![cell(0, 9, 1), cell(1, 5, 5)] },
            Column { begin: 20, end: 30, merged: 1, cells: vec![cell(0, 1, -4)] },
        ];
        assert_eq!((&all.columns[..], all.merged), (&expected[..], 2));
        assert_eq!(all.buckets(), Some((1, 9)));
    }

    #[test]
    fn columns_that_come_later_are_as_long_as_those_that_were_merged() {
        let mut all = cells(&[(0, 0, 1, 1), (10, 0, 1, 1), (20, 0, 1, 1)]);
        all.coarsen();
        for begin in [30, 40, 50] {
            all.column(begin, begin + 10).unwrap();
        }
        let times: Vec<_> = all.columns.iter().map(|c| (c.begin, c.end, c.merged)).collect();
        assert_eq!(times, [(0, 20, 2), (20, 40, 2), (40, 60, 2)]);
    }

    #[test]
    fn an_interval_before_the_last_one_is_refused() {
        let mut all = cells(&[(10, 0, 0, 1)]);
        assert!(all.column(5, 15).is_none());
        assert!(all.column(10, 20).is_some());
    }
}
