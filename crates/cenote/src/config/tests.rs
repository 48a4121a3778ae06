use super::*;

#[test]
fn every_key_is_documented_and_the_printed_configuration_reads_back_as_itself() {
    let config = Config { log: Log { level: "debug".into() }, ..Config::default() };
    assert_eq!(Config::parse(&config.documented(), "printed").unwrap(), config);
    let Ok(toml::Value::Table(sections)) = toml::Value::try_from(&config) else { panic!() };
    for (section, keys) in &sections {
        for key in keys.as_table().unwrap().keys() {
            let path = format!("{section}.{key}");
            assert!(documentation().any(|(known, _)| *known == path), "{path} is not documented");
        }
    }
    for (path, _) in documentation() {
        let (section, key) = path.split_once('.').unwrap();
        assert!(sections[section].get(key).is_some(), "{path} is documented and does not exist");
    }
}

#[test]
fn an_unknown_key_is_refused_with_its_name_and_line() {
    let error =
        Config::parse("[smb]\nlisten = [\"127.0.0.1:445\"]\nlistenn = 1\n", "cenote.toml").unwrap_err();
    let text = error.to_string();
    assert!(text.contains("line 3") && text.contains("listenn") && text.contains("cenote.toml"), "{text}");
    let text = Config::parse("\n[sbm]\n", "cenote.toml").unwrap_err().to_string();
    assert!(text.contains("line 2") && text.contains("sbm"), "{text}");
}

#[test]
fn a_wrong_type_or_a_broken_line_is_refused_with_its_line() {
    for (text, line) in [
        ("[limits]\nopens = \"many\"\n", "line 2"),
        ("[limits]\nopens = -1\n", "line 2"),
        ("[smb]\nlisten = [\"nowhere\"]\n", "line 2"),
        ("[smb\n", "line 1"),
    ] {
        let error = Config::parse(text, "f").unwrap_err().to_string();
        assert!(error.contains(line), "{text:?}: {error}");
    }
}

#[test]
fn a_wrong_value_is_refused_with_its_key_and_what_it_should_be() {
    for (text, wanted) in [
        ("[limits]\nopens = \"many\"\n", "limits.opens: invalid type: string \"many\", expected a number"),
        (
            "[smb]\nrequire_signing = 1\n",
            "smb.require_signing: invalid type: integer `1`, expected true or false",
        ),
        ("[smb]\nlisten = [\"127.0.0.1:445\", \"nowhere\"]\n", "smb.listen[1]: expected \"ADDRESS:PORT\""),
        ("[smb]\nlisten = \"127.0.0.1:445\"\n", "smb.listen: invalid type"),
        (
            "[limits]\ncache_bytes = \"1GB\"\n",
            "limits.cache_bytes: '1GB' is not a size: units are powers of 1024",
        ),
        ("[limits]\ncache_bytes = -1\n", "limits.cache_bytes: invalid value"),
        ("[accounts]\npassword_characters_min = 300\n", "accounts.password_characters_min: 1 to 16"),
        ("[cluster]\nbus_channels = 17\n", "cluster.bus_channels: at most 16"),
    ] {
        let error = Config::parse(text, "f").unwrap_err().to_string();
        assert!(error.contains(wanted), "{text:?}: {error}");
    }
}

#[test]
fn sizes_are_read_as_the_command_line_reads_them() {
    let text = "[limits]\ncache_bytes = \"1GiB\"\nbytes_in_flight = 67108864\nscrub_bytes_per_s = \"64M\"\n";
    let limits = Config::parse(text, "f").unwrap().limits;
    assert_eq!(
        (limits.cache_bytes, limits.bytes_in_flight, limits.scrub_bytes_per_s),
        (1 << 30, 64 << 20, 64 << 20)
    );
}

#[test]
fn values_that_make_no_sense_are_refused_by_key() {
    for (text, key) in [
        ("[server]\nname = \"\"\n", "server.name"),
        ("[server]\nname = \"a name that is too long\"\n", "server.name"),
        ("[smb]\nlisten = []\n", "smb.listen"),
        ("[api]\nlisten = \"0.0.0.0:9445\"\n", "api.listen"),
        ("[api]\ntls_listen = [\"0.0.0.0:9446\"]\n", "api.tls_certificate"),
        ("[api]\ntls_listen = [\"0.0.0.0:9446\"]\ntls_certificate = \"c.pem\"\n", "api.tls_key"),
        ("[health]\nwebhook = \"hooks.example\"\n", "health.webhook"),
        ("[health]\nwebhook = \"https://\"\n", "health.webhook"),
        ("[limits]\nopens = 0\n", "limits.opens"),
        ("[limits]\ncache_bytes = 1\n", "limits.cache_bytes"),
        ("[log]\nlevel = \"loud\"\n", "log.level"),
    ] {
        let error = Config::parse(text, "f").unwrap_err().to_string();
        assert!(error.contains(key), "{text:?}: {error}");
    }
}

#[test]
fn a_file_that_is_read_again_is_in_force_but_for_keys_that_need_a_restart() {
    let mut config = Config::default();
    let new = "[health]\nwebhook = \"https://hooks.example/x\"\n[accounts]\npassword_characters_min = 12\n\
               [smb]\nlisten = [\"[::1]:445\"]\n[limits]\nopens = 99\n[log]\nlevel = \"debug\"\n";
    let new = Config::parse(new, "f").unwrap();
    let taken = config.take_up(&new);
    assert_eq!(taken.in_force, ["health.webhook", "accounts.password_characters_min", "log.level"]);
    assert_eq!(taken.restart, ["smb.listen", "limits.opens"]);
    assert_eq!((&config.health, &config.accounts, &config.log), (&new.health, &new.accounts, &new.log));
    assert_eq!((&config.smb, &config.limits), (&Smb::default(), &LimitKeys::default()));
    // Reported again, since the restart is still to come.
    assert_eq!(config.take_up(&new), TakenUp { in_force: Vec::new(), restart: taken.restart });
}
