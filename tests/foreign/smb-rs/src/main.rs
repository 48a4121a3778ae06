//! The everyday of a client on a share, by smb-rs: each step prints "ok STEP" or "not ok STEP: reason".

use futures_util::StreamExt;
use smb::connection::EncryptionMode;
use smb::resource::SetLen;
use smb::{
    Client, ClientConfig, ConnectionConfig, CreateDisposition, CreateOptions, Directory, FileAccessMask, FileAttributes, FileCreateArgs,
    FileDispositionInformation, FileFullDirectoryInformation, FileRenameInformation, GetLen, ReadAt, Resource, UncPath, WriteAt,
};
use std::collections::HashSet;
use std::error::Error;
use std::str::FromStr;
use std::sync::Arc;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const PIECE: usize = 1 << 20;

fn setting(name: &str) -> String {
    std::env::var(format!("FOREIGN_{name}")).unwrap_or_else(|_| panic!("FOREIGN_{name} is not set"))
}

fn tell(step: &str, outcome: Outcome) {
    match outcome {
        Ok(()) => println!("ok {step}"),
        Err(error) => println!("not ok {step}: {}", error.to_string().replace('\n', " ")),
    }
}

fn expect(condition: bool, reason: &str) -> Outcome {
    if condition { Ok(()) } else { Err(reason.into()) }
}

/// Bytes that differ from place to place (xorshift).
fn random_bytes(size: usize) -> Vec<u8> {
    let mut state = size as u64 | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..size).map(|_| next()).collect()
}

struct Share {
    client: Client,
    root: UncPath,
}

impl Share {
    async fn connect(name: &str, password: &str, encryption_mode: EncryptionMode) -> Outcome<Self> {
        let connection = ConnectionConfig { encryption_mode, ..Default::default() };
        let client = Client::new(ClientConfig { connection, ..Default::default() });
        let root = UncPath::from_str(&format!(r"\\{}\{name}", setting("HOST")))?;
        client.share_connect(&root, &setting("USER"), password.to_owned()).await?;
        Ok(Self { client, root })
    }

    async fn open(&self, name: &str, arguments: &FileCreateArgs) -> Outcome<Resource> {
        let path = if name.is_empty() { self.root.clone() } else { self.root.clone().with_path(name) };
        Ok(self.client.create_file(&path, arguments).await?)
    }

    async fn existing(&self, name: &str, access: FileAccessMask) -> Outcome<Resource> {
        self.open(name, &FileCreateArgs::make_open_existing(access)).await
    }

    async fn make_directory(&self, name: &str) -> Outcome {
        let attributes = FileAttributes::new().with_directory(true);
        let options = CreateOptions::new().with_directory_file(true);
        let made = self.open(name, &FileCreateArgs::make_create_new(attributes, options)).await?;
        Ok(made.unwrap_dir().close().await?)
    }

    async fn list(&self, name: &str) -> Outcome<Vec<String>> {
        let access = FileAccessMask::new().with_generic_read(true);
        let directory = Arc::new(self.existing(name, access).await?.unwrap_dir());
        let mut names = Vec::new();
        {
            let mut entries = Directory::query::<FileFullDirectoryInformation>(&directory, "*").await?;
            while let Some(entry) = entries.next().await {
                names.push(entry?.file_name.to_string());
            }
        }
        directory.close().await?;
        names.retain(|name| name != "." && name != "..");
        Ok(names)
    }

    async fn write_at(&self, name: &str, data: &[u8], place: u64, disposition: CreateDisposition) -> Outcome {
        let arguments = FileCreateArgs {
            disposition,
            attributes: FileAttributes::new(),
            options: CreateOptions::new(),
            desired_access: FileAccessMask::new().with_generic_read(true).with_generic_write(true),
        };
        let file = self.open(name, &arguments).await?.unwrap_file();
        let mut written = 0;
        while written < data.len() {
            let end = data.len().min(written + PIECE);
            written += file.write_at(&data[written..end], place + written as u64).await?;
        }
        Ok(file.close().await?)
    }

    async fn write(&self, name: &str, data: &[u8]) -> Outcome {
        self.write_at(name, data, 0, CreateDisposition::OverwriteIf).await
    }

    async fn read(&self, name: &str) -> Outcome<Vec<u8>> {
        let file = self.existing(name, FileAccessMask::new().with_generic_read(true)).await?.unwrap_file();
        let mut data = vec![0; file.get_len().await? as usize];
        let mut read = 0;
        while read < data.len() {
            let end = data.len().min(read + PIECE);
            match file.read_at(&mut data[read..end], read as u64).await? {
                0 => return Err("the file ends early".into()),
                count => read += count,
            }
        }
        file.close().await?;
        Ok(data)
    }

    async fn write_and_compare(&self, name: &str, data: &[u8]) -> Outcome {
        self.write(name, data).await?;
        expect(self.read(name).await? == data, "the file does not hold what was written")
    }

    async fn rename(&self, old: &str, new: &str) -> Outcome {
        let access = FileAccessMask::new().with_generic_read(true).with_delete(true);
        let resource = self.existing(old, access).await?;
        let to = FileRenameInformation { replace_if_exists: false.into(), root_directory: 0, file_name: new.into() };
        match resource {
            Resource::File(file) => {
                file.set_info(to).await?;
                file.close().await?;
            }
            Resource::Directory(directory) => {
                directory.set_info(to).await?;
                directory.close().await?;
            }
            Resource::Pipe(_) => return Err("a pipe".into()),
        }
        Ok(())
    }

    async fn delete(&self, name: &str) -> Outcome {
        let access = FileAccessMask::new().with_generic_read(true).with_delete(true);
        match self.existing(name, access).await? {
            Resource::File(file) => {
                file.set_info(FileDispositionInformation::default()).await?;
                file.close().await?;
            }
            Resource::Directory(directory) => {
                directory.set_info(FileDispositionInformation::default()).await?;
                directory.close().await?;
            }
            Resource::Pipe(_) => return Err("a pipe".into()),
        }
        Ok(())
    }

    async fn directories(&self) -> Outcome {
        self.make_directory("directory").await?;
        self.make_directory(r"directory\inner").await?;
        expect(self.list("directory").await? == ["inner"], "the listing is another one")?;
        self.delete(r"directory\inner").await?;
        self.delete("directory").await?;
        expect(!self.list("").await?.contains(&"directory".to_owned()), "the directory is still there")
    }

    async fn rename_file(&self) -> Outcome {
        self.rename("file", "renamed").await?;
        expect(!self.list("").await?.contains(&"file".to_owned()), "the old name is still there")?;
        expect(self.read("renamed").await? == random_bytes(100_000), "the file does not hold what was written")
    }

    async fn rename_directory(&self) -> Outcome {
        self.make_directory("old").await?;
        self.write(r"old\inside", b"inside").await?;
        self.rename("old", "new").await?;
        expect(self.read(r"new\inside").await? == b"inside", "the file inside does not hold what was written")
    }

    async fn append(&self) -> Outcome {
        self.write("log", b"first\n").await?;
        self.write_at("log", b"second\n", 6, CreateDisposition::Open).await?;
        expect(self.read("log").await? == b"first\nsecond\n", "the file holds something else")
    }

    async fn truncate(&self) -> Outcome {
        let access = FileAccessMask::new().with_generic_read(true).with_generic_write(true);
        let file = self.existing("log", access).await?.unwrap_file();
        file.set_len(3).await?;
        file.close().await?;
        expect(self.read("log").await? == b"fir", "the file does not end after 3 bytes")
    }

    async fn delete_file(&self) -> Outcome {
        self.delete("log").await?;
        expect(!self.list("").await?.contains(&"log".to_owned()), "the file is still there")
    }

    async fn unicode_names(&self) -> Outcome {
        let names = ["Übergrößenträger", "日本語のファイル", "Ελληνικά и русский", "emoji 🦀"];
        self.make_directory("unicode").await?;
        for name in names {
            self.write_and_compare(&format!(r"unicode\{name}"), name.as_bytes()).await?;
        }
        let listed = self.list("unicode").await?;
        let listed: HashSet<&str> = listed.iter().map(String::as_str).collect();
        expect(listed == HashSet::from(names), "the listing is another one")
    }

    async fn many_names(&self) -> Outcome {
        self.make_directory("many").await?;
        // 32 at a time, as the client waits some 40 ms for each answer (two small segments a message, without TCP_NODELAY).
        let made = futures_util::stream::iter(0..2000).map(|number| async move { self.write(&format!(r"many\name-{number:04}"), b"").await });
        let outcomes: Vec<Outcome> = made.buffer_unordered(32).collect().await;
        outcomes.into_iter().collect::<Outcome>()?;
        let listed = self.list("many").await?;
        let distinct: HashSet<&String> = listed.iter().collect();
        expect(listed.len() == 2000 && distinct.len() == 2000, &format!("{} entries, {} names", listed.len(), distinct.len()))
    }

    async fn everyday(&self) {
        tell("connect", self.list("").await.map(drop));
        tell("directories", self.directories().await);
        tell("write and read back", self.write_and_compare("file", &random_bytes(100_000)).await);
        tell("rename a file", self.rename_file().await);
        tell("rename a directory", self.rename_directory().await);
        tell("append", self.append().await);
        tell("truncate", self.truncate().await);
        tell("delete", self.delete_file().await);
        tell("Unicode names", self.unicode_names().await);
        tell("64 MiB", self.write_and_compare("large", &random_bytes(64 << 20)).await);
        tell("2,000 names", self.many_names().await);
    }
}

async fn encrypted() -> Outcome {
    let share = Share::connect(&setting("SEALED"), &setting("PASSWORD"), EncryptionMode::Required).await?;
    share.write_and_compare("sealed", &random_bytes(1_000_000)).await
}

async fn wrong_password() -> Outcome {
    match Share::connect(&setting("SHARE"), &(setting("PASSWORD") + "x"), EncryptionMode::Allowed).await {
        Ok(_) => Err("was accepted".into()),
        Err(error) => {
            let text = format!("{error} {error:?}").to_lowercase();
            let is_refusal = text.contains("logon failure") || text.contains("c000006d") || text.contains("3221225581");
            expect(is_refusal, &format!("not STATUS_LOGON_FAILURE: {text}"))
        }
    }
}

async fn one_of_two(number: usize) -> Outcome {
    let share = Share::connect(&setting("SHARE"), &setting("PASSWORD"), EncryptionMode::Allowed).await?;
    for round in 0..50 {
        share.write_and_compare(&format!("client-{number}"), &random_bytes(10_000 * (number + 1) + round)).await?;
    }
    Ok(())
}

async fn two_clients() -> Outcome {
    let (first, second) = tokio::join!(tokio::spawn(one_of_two(0)), tokio::spawn(one_of_two(1)));
    first??;
    second?
}

// On one thread: on several, a listing of smb 0.12 misses its wake-up now and then, and waits for good.
#[tokio::main(flavor = "current_thread")]
async fn main() {
    match Share::connect(&setting("SHARE"), &setting("PASSWORD"), EncryptionMode::Allowed).await {
        Ok(share) => share.everyday().await,
        Err(error) => tell("connect", Err(error)),
    }
    tell("encrypted", encrypted().await);
    tell("two clients", two_clients().await);
    tell("wrong password", wrong_password().await);
}
