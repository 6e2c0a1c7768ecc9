//! The sink of a session of Python: events in a queue, the text that a user would see, and what
//! pictures are drawn of.

use std::collections::VecDeque;
use std::io::{self, Write};

use dtrace::events::{self, Event};
use dtrace::flame::{self, Flame};
use dtrace::heat::{self, Heat};
use dtrace::options::Options;
use dtrace::{Effects, Message, Needs, Output, Sink, Text, formats};
use events::{Aggregation, Occasion, Row, SinkError};

/// See the [module](self).
pub(crate) struct Receiver {
    queue: VecDeque<Event<'static>>,
    printed: Printed,
    flame: Flame,
    heat: Heat,
}

/// What is done with the text.
enum Printed {
    /// It is kept, until it is taken.
    Kept(Box<Text<Kept>>),
    /// There is none; what programs do to the output is done.
    Nothing(Box<Effects<io::Sink>>),
}

impl Receiver {
    /// `keeps_text`: the text that the command would print is wanted.
    pub(crate) fn new(options: &Options, keeps_text: bool) -> Receiver {
        let unnamed = formats::unnamed(options);
        let mut flame = Flame::new(unnamed, None);
        flame.set_most_frames([options.kernel_frames(), options.user_frames(), options.jstackframes]);
        let printed = match keeps_text {
            true => Printed::Kept(Box::new(Text::new(Kept(Vec::new())))),
            false => Printed::Nothing(Box::new(Effects::new(io::sink()))),
        };
        Receiver { queue: VecDeque::new(), printed, flame, heat: Heat::new(unnamed) }
    }

    /// The next event. Rows of an aggregation come when all are there.
    pub(crate) fn pop(&mut self) -> Option<Event<'static>> {
        let is_complete = match self.queue.front()? {
            Event::Aggregation(all) => all.part.last,
            Event::Interval(all) => all.part.last,
            _ => true,
        };
        // What follows a part is not a part of another.
        let event = (is_complete || self.queue.len() > 1).then(|| self.queue.pop_front()).flatten()?;
        let Event::Aggregation(mut all) = event else { return Some(event) };
        // What `printa()` has printed comes once more at the end, as this sink needs it. What was
        // demanded before is not here any more.
        if all.occasion == Occasion::Demand {
            all.occasion = Occasion::End;
        }
        let mut columns = split(all);
        let first = columns.next();
        for (at, column) in columns.enumerate() {
            self.queue.insert(at, Event::Aggregation(column));
        }
        first.map(Event::Aggregation)
    }

    /// The aggregations that were delivered on demand, which no others get.
    pub(crate) fn take_demanded(&mut self) -> Vec<Event<'static>> {
        let is_demanded =
            |event: &Event<'_>| matches!(event, Event::Aggregation(all) if all.occasion == Occasion::Demand);
        let (demanded, others) = self.queue.drain(..).partition(is_demanded);
        self.queue = VecDeque::from(others);
        demanded
    }

    /// The events that nobody has taken are gone.
    pub(crate) fn forget_events(&mut self) {
        self.queue = VecDeque::new();
    }

    /// The text since the last call.
    pub(crate) fn take_text(&mut self) -> Vec<u8> {
        match &mut self.printed {
            Printed::Kept(text) => std::mem::take(&mut text.output_mut().0),
            Printed::Nothing(_) => Vec::new(),
        }
    }

    /// The stacks in keys of aggregations, drawn; none if there are none.
    pub(crate) fn draw_stacks(&mut self, format: flame::Format) -> Option<Vec<u8>> {
        self.flame.compare();
        (!self.flame.profiles().is_empty()).then(|| format.write(&self.flame))
    }

    /// The distributions over time, drawn; none if there are none.
    pub(crate) fn draw_heat(&self, format: heat::Format) -> Option<Vec<u8>> {
        (!self.heat.is_empty()).then(|| format.write(&self.heat))
    }

    fn keep(&mut self, event: &Event<'_>) {
        match (event, self.queue.back_mut()) {
            (Event::Aggregation(more), Some(Event::Aggregation(all))) if !more.part.first => {
                all.part.last = more.part.last;
                all.rows.extend(more.rows.iter().map(|row| row.clone().into_owned()));
            }
            (Event::Interval(more), Some(Event::Interval(all))) if !more.part.first => {
                all.part.last = more.part.last;
                all.rows.extend(more.rows.iter().map(|row| row.clone().into_owned()));
            }
            (Event::Options(_) | Event::Interrupt | Event::Stop, _) => {}
            _ => self.queue.push_back(event.clone().into_owned()),
        }
    }
}

/// Rows of several aggregations (`printa(@a, @b)`) as those of each.
fn split(all: Aggregation<'static>) -> impl Iterator<Item = Aggregation<'static>> {
    let Aggregation { occasion, time, keys, columns, rows, .. } = all;
    columns.into_iter().enumerate().map(move |(n, column)| {
        let row = |row: &Row<'static>| {
            let value = row.values.get(n).filter(|value| !value.absent)?;
            Some(Row { key: row.key.clone(), values: vec![value.clone()] })
        };
        let mut one = Aggregation::new(occasion, vec![column], rows.iter().filter_map(row).collect());
        (one.time, one.keys) = (time, keys.clone());
        one
    })
}

impl Sink for Receiver {
    fn needs(&self) -> Needs {
        Needs { process_ids: true, printed: true }
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        self.keep(event);
        self.flame.event(event)?;
        self.heat.event(event)?;
        match (&mut self.printed, event) {
            // The text is that of the command, which demands nothing.
            (Printed::Kept(_), Event::Aggregation(all)) if all.occasion == Occasion::Demand => Ok(()),
            (Printed::Kept(text), event) => text.event(event),
            (Printed::Nothing(effects), Event::Effect(effect)) => effects.perform(effect),
            (Printed::Nothing(_), _) => Ok(()),
        }
    }

    fn batch_end(&mut self) -> io::Result<()> {
        match &mut self.printed {
            Printed::Kept(text) => text.batch_end(),
            Printed::Nothing(_) => Ok(()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.printed {
            Printed::Kept(text) => text.flush(),
            Printed::Nothing(_) => Ok(()),
        }
    }

    fn aborted(&mut self) {
        if let Printed::Kept(text) = &mut self.printed {
            text.aborted();
        }
    }
}

/// Text in memory. Messages are events, which Python has.
pub(crate) struct Kept(Vec<u8>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for Kept {
    fn truncate(&mut self) -> io::Result<()> {
        self.0.clear();
        Ok(())
    }

    fn messages(&mut self, _: &[Message]) -> io::Result<()> {
        Ok(())
    }
}
