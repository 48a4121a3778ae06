use super::*;

#[test]
fn the_ways_to_write_an_address_mean_the_same() {
    let place = Location {
        server: "filer".into(),
        others: Vec::new(),
        port: None,
        user: None,
        share: "demo".into(),
        path: "a\\b c.txt".into(),
    };
    for text in [
        "//filer/demo/a/b c.txt",
        r"\\filer\demo\a\b c.txt",
        "smb://filer/demo/a/b c.txt",
        "SMB://filer/demo//a/b c.txt/",
    ] {
        assert_eq!(Location::parse(text), Ok(place.clone()), "{text}");
    }
    assert_eq!(place.to_string(), "//filer/demo/a/b c.txt");
    let named = Location { port: Some(4455), user: Some("ana".into()), ..place.clone() };
    assert_eq!(Location::parse("smb://ana@filer:4455/demo/a/b c.txt"), Ok(named));
    let several = Location { others: vec!["::1".into(), "c".into()], port: Some(4455), ..place.clone() };
    assert_eq!(Location::parse("smb://filer,[::1],c:4455/demo/a/b c.txt"), Ok(several.clone()));
    assert_eq!(several.to_string(), "//filer,::1,c/demo/a/b c.txt");
    let root = Location { server: "::1".into(), port: Some(445), path: String::new(), ..place };
    assert_eq!(Location::parse("smb://[::1]:445/demo"), Ok(root));
}

#[test]
fn what_is_wrong_with_an_address_is_said() {
    for (text, wrong) in [
        ("/srv/file", LocationError::Scheme),
        ("smb", LocationError::Scheme),
        ("//", LocationError::Server),
        ("smb:///demo/x", LocationError::Server),
        ("//filer", LocationError::Share),
        ("smb://filer//x", LocationError::Share),
        ("smb://ana:secret@filer/demo/x", LocationError::Password),
        ("smb://[::1/demo/x", LocationError::Bracket),
        ("smb://filer:0/demo/x", LocationError::Port),
        ("smb://filer:70000/demo/x", LocationError::Port),
        ("smb://filer:/demo/x", LocationError::Port),
        ("smb://filer:445,b/demo/x", LocationError::PortInFront),
        ("smb://filer,/demo/x", LocationError::Server),
        ("smb://,filer/demo/x", LocationError::Server),
    ] {
        assert_eq!(Location::parse(text), Err(wrong), "{text}");
    }
}

#[test]
fn a_local_path_is_not_taken_for_an_address() {
    for text in [r"\\filer\demo\x", "smb://filer/demo/x", "Smb://"] {
        assert!(Location::is_meant(text), "{text}");
    }
    for text in ["//srv/file", "/srv/file", "file", "#1", "smb:/", "é://file"] {
        assert!(!Location::is_meant(text), "{text}");
    }
}
