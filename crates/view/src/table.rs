//! A table, before it becomes Markdown or HTML.

/// A table. Every row has as many cells as there are columns; the first cell of a row is its head.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Cell>>,
    /// What the columns mean. Not escaped; may be empty.
    pub caption: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    pub name: &'static str,
    /// Where its cells stand.
    pub align: Align,
}

/// Where a cell stands in its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// At the left: words.
    Left,
    /// At the right: numbers.
    Right,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cell {
    /// Not escaped.
    pub text: String,
    /// A second thing, smaller. Not escaped.
    pub note: Option<String>,
    /// What to sort by.
    pub value: Option<f64>,
    /// Bold.
    pub strong: bool,
}

impl Cell {
    /// Words.
    pub fn text(text: &str) -> Cell {
        Cell { text: text.to_owned(), ..Cell::default() }
    }

    /// A number and how it is written.
    pub fn number(value: f64, text: String) -> Cell {
        Cell { text, value: Some(value).filter(|value| value.is_finite()), ..Cell::default() }
    }

    /// With a note.
    pub fn noted(self, note: String) -> Cell {
        Cell { note: Some(note), ..self }
    }

    /// Bold on a condition.
    pub fn strong_if(self, strong: bool) -> Cell {
        Cell { strong, ..self }
    }

    /// The classes of the cell in a column.
    pub(crate) fn class(&self, column: &Column) -> &'static str {
        match (column.align, self.strong) {
            (Align::Left, false) => "",
            (Align::Left, true) => "strong",
            (Align::Right, false) => "n",
            (Align::Right, true) => "n strong",
        }
    }
}

impl Table {
    /// A table of these columns.
    pub fn new(columns: &[(&'static str, Align)], rows: Vec<Vec<Cell>>, caption: &str) -> Table {
        let columns = columns.iter().map(|(name, align)| Column { name, align: *align }).collect();
        Table { columns, rows, caption: caption.to_owned() }
    }
}
