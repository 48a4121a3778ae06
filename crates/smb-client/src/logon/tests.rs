use super::*;

#[test]
fn credentials_are_read_as_mount_cifs_reads_them() {
    let text = "# who\n  username=ann\npassword= with = signs and blanks \n\ndomain=EXAMPLE\nnocase=1\n";
    let logon = Logon::parse(text).expect("is right");
    assert_eq!(logon.user.as_deref(), Some("ann"));
    assert_eq!(*logon.password, " with = signs and blanks ");
    assert_eq!(logon.domain, "EXAMPLE");
    let logon = Logon::parse("username=EXAMPLE\\ann\n").expect("is right");
    assert_eq!((&*logon.domain, logon.user.as_deref()), ("EXAMPLE", Some("ann")));
    assert_eq!(Logon::parse("username=ann\nsecret\n"), Err(2));
}

#[test]
fn a_file_that_cannot_be_used_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("credentials");
    let error = Logon::read(&path).expect_err("is missing").to_string();
    assert!(error.contains("credentials") && error.contains("cannot be read"), "{error}");
    std::fs::write(&path, "username=ann\nsecret\n").expect("is written");
    let error = Logon::read(&path).expect_err("is wrong").to_string();
    assert!(error.contains("line 2") && !error.contains("secret"), "{error}");
    std::fs::write(&path, vec![b'#'; 1 << 17]).expect("is written");
    assert!(matches!(Logon::read(&path), Err(LogonError::TooLong { .. })));
}

#[test]
fn the_user_of_an_address_goes_before_that_of_the_file() {
    let logon = Logon::parse("username=ann\npassword=x\n").expect("is right");
    let user = |credentials| match credentials {
        Some(Credentials::User { user, .. }) => user,
        _ => panic!("a user"),
    };
    assert_eq!(user(logon.credentials(None, "filer")), "ann");
    assert_eq!(user(logon.credentials(Some("ben"), "filer")), "ben");
    assert!(Logon::default().credentials(None, "filer").is_none());
}
