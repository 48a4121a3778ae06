use super::*;
use std::os::unix::fs::PermissionsExt;

fn allow(path: &Path, mode: u32) {
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, permissions).expect("its mode is set");
}

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
    allow(&path, 0o600);
    let error = Logon::read(&path).expect_err("is wrong").to_string();
    assert!(error.contains("line 2") && !error.contains("secret"), "{error}");
    std::fs::write(&path, vec![b'#'; 1 << 17]).expect("is written");
    assert!(matches!(Logon::read(&path), Err(LogonError::TooLong { .. })));
}

#[test]
fn a_file_that_others_may_read_or_write_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("credentials");
    std::fs::write(&path, "username=ann\npassword=secret\n").expect("is written");
    for mode in [0o644, 0o640, 0o604, 0o620, 0o660, 0o700] {
        allow(&path, mode);
        let error = Logon::read(&path).expect_err("is refused").to_string();
        assert!(error.contains(&format!("{mode:04o}")) && error.contains("chmod 600"), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
    for mode in [0o600, 0o400] {
        allow(&path, mode);
        assert_eq!(Logon::read(&path).expect("is taken").user.as_deref(), Some("ann"));
    }
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
