//! Text that is safe for a terminal: names come from servers, and from users of servers, and none of their
//! characters moves the cursor, clears the screen, types an answer or turns the direction of a line round.
//!
//! Promises: all that this crate prints for people passes through here, by the macros that stand in for anstream's. JSON keeps names as
//! they are, with such characters escaped.

use std::borrow::Cow;
use std::fmt::Arguments;

/// The styles that this crate gives to words (`owo_colors`): ESC, `[`, one of these, `m`. They change nothing but looks.
const STYLES: &[&str] = &["0", "1", "2", "22", "31", "32", "33", "36", "39"];

/// Controls of the C0 and C1 sets, and the marks of Unicode that turn the direction of text (UAX 9, explicit formatting).
fn is_unfit(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// A name, for a place within a line.
pub fn printable(text: &str) -> Cow<'_, str> {
    replaced(text, false)
}

/// Lines of text, with the styles of this crate.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    replaced(text, true)
}

/// A cell of a table: one line, which may have a style.
pub fn printable_cell(text: &str) -> Cow<'_, str> {
    match printable_lines(text) {
        lines if lines.contains('\n') => lines.replace('\n', "\u{FFFD}").into(),
        line => line,
    }
}

fn replaced(text: &str, has_lines: bool) -> Cow<'_, str> {
    if !text.chars().any(is_unfit) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let style = if has_lines { style_of(rest) } else { None };
        let taken = style.map_or(character.len_utf8(), str::len);
        let (these, behind) = rest.split_at(taken);
        match character {
            '\n' if has_lines => shown.push('\n'),
            _ if style.is_some() || !is_unfit(character) => shown.push_str(these),
            _ => shown.push('\u{FFFD}'),
        }
        rest = behind;
    }
    shown.into()
}

/// The style at the beginning of `text`, if there is one.
fn style_of(text: &str) -> Option<&str> {
    let code = text.strip_prefix("\u{1b}[")?;
    let (code, _) = code.split_once('m')?;
    STYLES.contains(&code).then(|| &text[..code.len() + 3])
}

/// JSON in which such characters are escaped; they stand in strings only.
pub fn escaped_json(json: String) -> String {
    let is_raw = |character: char| character != '\n' && is_unfit(character);
    if !json.contains(is_raw) {
        return json;
    }
    let mut escaped = String::with_capacity(json.len() + 64);
    for character in json.chars() {
        match is_raw(character) {
            true => escaped.push_str(&format!("\\u{:04x}", u32::from(character))),
            false => escaped.push(character),
        }
    }
    escaped
}

pub fn print_out(text: Arguments<'_>, end: &str) {
    anstream::print!("{}{end}", printable_lines(&text.to_string()));
}

pub fn print_error(text: Arguments<'_>, end: &str) {
    anstream::eprint!("{}{end}", printable_lines(&text.to_string()));
}

macro_rules! println {
    () => { $crate::printable::print_out(format_args!(""), "\n") };
    ($($text:tt)*) => { $crate::printable::print_out(format_args!($($text)*), "\n") };
}
macro_rules! print {
    ($($text:tt)*) => { $crate::printable::print_out(format_args!($($text)*), "") };
}
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::printable::print_error(format_args!($($text)*), "\n") };
}
macro_rules! eprint {
    ($($text:tt)*) => { $crate::printable::print_error(format_args!($($text)*), "") };
}
pub(crate) use {eprint, eprintln, print, println};

#[cfg(test)]
mod tests {
    use super::*;
    use owo_colors::OwoColorize;

    #[test]
    fn names_from_a_server_do_not_move_the_cursor() {
        assert_eq!(printable("a\u{1b}[2Jb\n"), "a\u{FFFD}[2Jb\u{FFFD}");
        assert_eq!(printable("a\u{9b}2Jb\u{202E}gpj"), "a\u{FFFD}2Jb\u{FFFD}gpj");
        assert_eq!(printable_cell("one\nroot  full"), "one\u{FFFD}root  full");
        assert_eq!(
            printable_lines("a\u{1b}]0;title\u{7}\u{9d}\r\nb\t"),
            "a\u{FFFD}]0;title\u{FFFD}\u{FFFD}\u{FFFD}\nb\u{FFFD}"
        );
        assert_eq!(printable("größe"), "größe");
    }

    #[test]
    fn styles_of_our_own_stay() {
        let styled = format!("{} {} {}", "healthy".green(), "bad".red().bold(), "note".dimmed());
        assert_eq!(printable_lines(&styled), styled);
        assert_eq!(printable_lines("\u{1b}[8mhidden\u{1b}[31;8m"), "\u{FFFD}[8mhidden\u{FFFD}[31;8m");
        assert_eq!(printable_lines("\u{1b}[ü"), "\u{FFFD}[ü");
    }

    #[test]
    fn json_keeps_names_and_nothing_of_them_reaches_a_terminal() {
        let name = "a\u{9b}2J\u{1b}\u{7f}\u{202E}";
        let escaped = escaped_json(serde_json::to_string_pretty(&[name]).unwrap());
        assert!(escaped.chars().all(|character| character == '\n' || !is_unfit(character)), "{escaped:?}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&escaped).unwrap(), [name]);
    }
}
