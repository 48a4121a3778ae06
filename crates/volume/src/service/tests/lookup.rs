use super::super::wildcard::Pattern;
use super::wide;

fn holds(pattern: &str, name: &str) -> bool {
    Pattern::new(&wide(pattern)).expect("short enough").matches(&wide(name), &mut 0)
}

#[test]
fn stars_and_question_marks_match_by_the_nt_rule() {
    for (pattern, name, expected) in [
        ("*", "anything", true),
        ("", "anything", true),
        ("*.txt", "a.TXT", true),
        ("*.txt", "a.txt.bak", false),
        ("a?c", "abc", true),
        ("a?c", "ac", false),
        ("?", "", false),
        ("*a*b*", "xxaxxbxx", true),
        ("*a*b*", "xxbxxaxx", false),
        ("abc", "ABC", true),
        ("abc", "abcd", false),
    ] {
        assert_eq!(holds(pattern, name), expected, "{pattern} {name}");
    }
}

#[test]
fn dos_wildcards_match_by_the_nt_rule() {
    for (pattern, name, expected) in [
        // The DOS forms of *.*, *.txt and ?????.txt.
        ("<\"*", "noextension", true),
        ("<.txt", "a.b.txt", true),
        ("<.txt", "a.b.doc", false),
        (">>>>>.txt", "abc.txt", true),
        (">>>>>.txt", "abcdef.txt", false),
        ("abc>>", "abc", true),
        ("abc\"", "abc", true),
        ("abc\"txt", "abc.txt", true),
        ("abc\"txt", "abcxtxt", false),
    ] {
        assert_eq!(holds(pattern, name), expected, "{pattern} {name}");
    }
}
