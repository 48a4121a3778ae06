// The everyday of a client on a share, by a Go client: each step prints "ok STEP" or "not ok STEP: reason".
package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"sync"
)

var (
	address  = os.Getenv("FOREIGN_HOST") + ":" + os.Getenv("FOREIGN_PORT")
	user     = os.Getenv("FOREIGN_USER")
	password = os.Getenv("FOREIGN_PASSWORD")
)

func step(name string, run func() error) {
	if err := run(); err != nil {
		fmt.Printf("not ok %s: %v\n", name, err)
	} else {
		fmt.Printf("ok %s\n", name)
	}
}

func randomBytes(size int) []byte {
	data := make([]byte, size)
	rand.New(rand.NewSource(int64(size))).Read(data)
	return data
}

func holds(share *Share, name string, want []byte) error {
	got, err := share.ReadFile(name)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%s holds %d bytes that are not the %d bytes written", name, len(got), len(want))
	}
	return err
}

func absent(share *Share, name string) error {
	if _, err := share.Stat(name); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s is there: %v", name, err)
	}
	return nil
}

func writeAndCompare(share *Share, name string, data []byte) error {
	if err := share.WriteFile(name, data, 0o644); err != nil {
		return err
	}
	return holds(share, name, data)
}

func directories(share *Share) error {
	if err := share.Mkdir("directory", 0o755); err != nil {
		return err
	}
	if err := share.Mkdir(`directory\inner`, 0o755); err != nil {
		return err
	}
	entries, err := share.ReadDir("directory")
	if err != nil || len(entries) != 1 || entries[0].Name() != "inner" || !entries[0].IsDir() {
		return fmt.Errorf("the listing is %v, %v", entries, err)
	}
	if err := share.Remove("directory"); err == nil {
		return errors.New("a directory with entries was removed")
	}
	if err := share.RemoveAll("directory"); err != nil {
		return err
	}
	return absent(share, "directory")
}

func renameFile(share *Share) error {
	if err := share.Rename("file", "renamed"); err != nil {
		return err
	}
	if err := absent(share, "file"); err != nil {
		return err
	}
	return holds(share, "renamed", randomBytes(100_000))
}

func renameDirectory(share *Share) error {
	if err := share.Mkdir("old", 0o755); err != nil {
		return err
	}
	if err := share.WriteFile(`old\inside`, []byte("inside"), 0o644); err != nil {
		return err
	}
	if err := share.Rename("old", "new"); err != nil {
		return err
	}
	return holds(share, `new\inside`, []byte("inside"))
}

func appendTo(share *Share) error {
	if err := share.WriteFile("log", []byte("first\n"), 0o644); err != nil {
		return err
	}
	file, err := share.OpenFile("log", os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	if _, err := file.Write([]byte("second\n")); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return holds(share, "log", []byte("first\nsecond\n"))
}

func truncate(share *Share) error {
	if err := share.Truncate("log", 3); err != nil {
		return err
	}
	if err := holds(share, "log", []byte("fir")); err != nil {
		return err
	}
	if err := share.Truncate("log", 6); err != nil {
		return err
	}
	return holds(share, "log", []byte("fir\x00\x00\x00"))
}

func deleteFile(share *Share) error {
	if err := share.Remove("log"); err != nil {
		return err
	}
	return absent(share, "log")
}

func unicodeNames(share *Share) error {
	names := map[string]bool{"Übergrößenträger": true, "日本語のファイル": true, "Ελληνικά и русский": true, "emoji 🦀": true}
	if err := share.Mkdir("unicode", 0o755); err != nil {
		return err
	}
	for name := range names {
		if err := writeAndCompare(share, `unicode\`+name, []byte(name)); err != nil {
			return err
		}
	}
	entries, err := share.ReadDir("unicode")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		delete(names, entry.Name())
	}
	if len(names) != 0 || len(entries) != 4 {
		return fmt.Errorf("not listed: %v", names)
	}
	return nil
}

func manyNames(share *Share) error {
	if err := share.Mkdir("many", 0o755); err != nil {
		return err
	}
	for number := 0; number < 2000; number++ {
		file, err := share.Create(fmt.Sprintf(`many\name-%04d`, number))
		if err != nil {
			return err
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
	entries, err := share.ReadDir("many")
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, entry := range entries {
		seen[entry.Name()] = true
	}
	if len(entries) != 2000 || len(seen) != 2000 {
		return fmt.Errorf("%d entries, %d names", len(entries), len(seen))
	}
	return share.RemoveAll("many")
}

func wrongPassword() error {
	session, err := dial(address, user, password+"x")
	if err == nil {
		session.Logoff()
		return errors.New("was accepted")
	}
	var response *ResponseError
	if !errors.As(err, &response) || response.Code != 0xc000006d {
		return fmt.Errorf("not STATUS_LOGON_FAILURE: %v", err)
	}
	return nil
}

func twoClients() error {
	var group sync.WaitGroup
	results := make([]error, 2)
	for client := range results {
		group.Add(1)
		go func(client int) {
			defer group.Done()
			results[client] = oneOfTwo(client)
		}(client)
	}
	group.Wait()
	return errors.Join(results...)
}

func oneOfTwo(client int) error {
	return with(os.Getenv("FOREIGN_SHARE"), func(share *Share) error {
		for round := 0; round < 50; round++ {
			if err := writeAndCompare(share, fmt.Sprintf("client-%d", client), randomBytes(10_000*(client+1)+round)); err != nil {
				return err
			}
		}
		return nil
	})
}

func with(name string, run func(share *Share) error) error {
	session, err := dial(address, user, password)
	if err != nil {
		return err
	}
	defer session.Logoff()
	share, err := session.Mount(name)
	if err != nil {
		return err
	}
	defer share.Umount()
	return run(share)
}

func main() {
	err := with(os.Getenv("FOREIGN_SHARE"), func(share *Share) error {
		step("connect", func() error { _, err := share.ReadDir("."); return err })
		step("directories", func() error { return directories(share) })
		step("write and read back", func() error { return writeAndCompare(share, "file", randomBytes(100_000)) })
		step("rename a file", func() error { return renameFile(share) })
		step("rename a directory", func() error { return renameDirectory(share) })
		step("append", func() error { return appendTo(share) })
		step("truncate", func() error { return truncate(share) })
		step("delete", func() error { return deleteFile(share) })
		step("Unicode names", func() error { return unicodeNames(share) })
		step("64 MiB", func() error { return writeAndCompare(share, "large", randomBytes(64<<20)) })
		step("2,000 names", func() error { return manyNames(share) })
		return nil
	})
	if err != nil {
		fmt.Printf("not ok connect: %v\n", err)
	}
	step("encrypted", func() error {
		return with(os.Getenv("FOREIGN_SEALED"), func(share *Share) error { return writeAndCompare(share, "sealed", randomBytes(1_000_000)) })
	})
	step("wrong password", wrongPassword)
	step("two clients", twoClients)
}
