//! Tables as PowerShell's `Export-Csv -Delimiter "`t"` writes them: quoted values, a tab between them, a header.

/// Bytes of a table that is read, and columns of a line, at most.
pub const BYTES_MAX: u64 = 64 << 20;
const COLUMNS_MAX: usize = 256;

/// Why a table cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct TsvError {
    /// From 1.
    pub line: usize,
    pub why: &'static str,
}

/// A header and rows of as many values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// The value of a row in a column; `None` if there is no such column.
    pub fn value<'a>(&self, row: &'a [String], column: &str) -> Option<&'a str> {
        let at = self.columns.iter().position(|name| name == column)?;
        row.get(at).map(String::as_str)
    }

    /// Reads a table. Values may stand without quotes; empty lines are skipped. Text that ends in the middle of a line, as a killed
    /// writer leaves it, loses that line.
    ///
    /// # Errors
    /// The malformed line.
    pub fn parse(text: &str) -> Result<Self, TsvError> {
        let mut table = Self::default();
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        for (number, line) in text[..whole].lines().enumerate() {
            if line.is_empty() {
                continue;
            }
            let values = split(line).map_err(|why| TsvError { line: number + 1, why })?;
            if table.columns.is_empty() {
                table.columns = values;
            } else if values.len() == table.columns.len() {
                table.rows.push(values);
            } else {
                return Err(TsvError { line: number + 1, why: "it has not as many values as the header" });
            }
        }
        Ok(table)
    }
}

/// The values of a line.
fn split(line: &str) -> Result<Vec<String>, &'static str> {
    let mut values = Vec::new();
    let mut rest = line;
    loop {
        if values.len() >= COLUMNS_MAX {
            return Err("it has too many columns");
        }
        let (value, after) = match rest.strip_prefix('"') {
            Some(quoted) => unquote(quoted).ok_or("a quoted value has no end")?,
            None => {
                let end = rest.find('\t').unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            }
        };
        values.push(value);
        rest = match after.strip_prefix('\t') {
            Some(next) => next,
            None if after.is_empty() => return Ok(values),
            None => return Err("something stands behind a quoted value"),
        };
    }
}

/// The value up to the closing quote, and what follows that; two quotes stand for one.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut rest = text;
    loop {
        let end = rest.find('"')?;
        value.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(next) => {
                value.push('"');
                rest = next;
            }
            None => return Some((value, rest)),
        }
    }
}

/// A line, with its end. Line breaks in values become blanks.
pub fn line<'a>(values: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = values
        .into_iter()
        .map(|value| format!("\"{}\"", value.replace(['\n', '\r'], " ").replace('"', "\"\"")))
        .collect();
    quoted.join("\t") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_table_of_powershell_is_read() {
        let text = "\"RunLabel\"\t\"Work load\"\t\"IOPS\"\r\n\"a\"\t\"say \"\"hi\"\"\"\t\"12.5\"\r\n\r\nb\tplain\t7\n\"cut off";
        let table = Table::parse(text).unwrap();
        assert_eq!(table.rows.len(), 2);
        assert_eq!(table.value(&table.rows[0], "Work load"), Some("say \"hi\""));
        assert_eq!(table.value(&table.rows[1], "IOPS"), Some("7"));
        assert_eq!(table.value(&table.rows[1], "iops"), None);
    }

    #[test]
    fn wrong_lines_are_named() {
        assert_eq!(Table::parse("a\tb\n1\n").unwrap_err().line, 2);
        assert_eq!(Table::parse("a\n\"b\n").unwrap_err().line, 2);
        assert_eq!(Table::parse("a\n\"b\"c\n").unwrap_err().line, 2);
        let wide = "x\t".repeat(COLUMNS_MAX + 1) + "\n";
        assert_eq!(Table::parse(&wide).unwrap_err().line, 1);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(rows in prop::collection::vec(prop::collection::vec("[^\r\n]{0,12}", 3), 1..6)) {
            // A line of nothing but one empty value cannot be told from an empty line; three values can.
            let text: String = rows.iter().map(|row| line(row.iter().map(String::as_str))).collect();
            let table = Table::parse(&text).unwrap();
            prop_assert_eq!(&table.columns, &rows[0]);
            prop_assert_eq!(&table.rows, &rows[1..]);
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}") {
            let _ = Table::parse(&text);
        }
    }
}
