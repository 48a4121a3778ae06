/* The everyday of a client on a share, by libsmb2: each step prints "ok STEP" or "not ok STEP: reason". */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <smb2/smb2.h>
#include <smb2/libsmb2.h>

#define REASON_BYTES 300

struct share {
    struct smb2_context *smb2;
    char reason[REASON_BYTES];
};

static int fails(struct share *share, const char *what)
{
    snprintf(share->reason, sizeof share->reason, "%s: %s", what, share->smb2 ? smb2_get_error(share->smb2) : "");
    return 0;
}

static void tell(const char *step, struct share *share, int passes)
{
    if (passes)
        printf("ok %s\n", step);
    else
        printf("not ok %s: %s\n", step, strtok(share->reason, "\n"));
    fflush(stdout);
}

static char *setting(const char *name)
{
    char *value = getenv(name);
    if (!value) {
        fprintf(stderr, "%s is not set\n", name);
        exit(2);
    }
    return value;
}

static uint8_t *random_bytes(size_t size)
{
    uint8_t *data = malloc(size ? size : 1);
    uint64_t state = size | 1;
    for (size_t place = 0; place < size; place++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        data[place] = (uint8_t)state;
    }
    return data;
}

static int connect_share(struct share *share, const char *name, const char *password, int seal)
{
    char server[200];
    share->smb2 = smb2_init_context();
    snprintf(server, sizeof server, "%s:%s", setting("FOREIGN_HOST"), setting("FOREIGN_PORT"));
    smb2_set_user(share->smb2, setting("FOREIGN_USER"));
    smb2_set_password(share->smb2, password);
    smb2_set_security_mode(share->smb2, SMB2_NEGOTIATE_SIGNING_ENABLED | SMB2_NEGOTIATE_SIGNING_REQUIRED);
    smb2_set_version(share->smb2, SMB2_VERSION_ANY3);
    smb2_set_timeout(share->smb2, 60);
    if (seal)
        smb2_set_seal(share->smb2, 1);
    if (smb2_connect_share(share->smb2, server, name, setting("FOREIGN_USER")) != 0)
        return fails(share, "connect");
    return 1;
}

static void disconnect(struct share *share)
{
    smb2_disconnect_share(share->smb2);
    smb2_destroy_context(share->smb2);
}

/* Counts a directory's entries; *is_there says whether `name` is among them. */
static int list(struct share *share, const char *path, const char *name, int *is_there)
{
    int count = 0;
    struct smb2dirent *entry;
    struct smb2dir *directory = smb2_opendir(share->smb2, path);
    if (!directory)
        return -1;
    *is_there = 0;
    while ((entry = smb2_readdir(share->smb2, directory))) {
        if (!strcmp(entry->name, ".") || !strcmp(entry->name, ".."))
            continue;
        count++;
        *is_there |= !strcmp(entry->name, name);
    }
    smb2_closedir(share->smb2, directory);
    return count;
}

static int has(struct share *share, const char *path, const char *name, int wanted)
{
    int is_there = 0;
    if (list(share, path, name, &is_there) < 0)
        return fails(share, "list");
    if (is_there != wanted)
        return fails(share, wanted ? "a name is not listed" : "an old name is listed");
    return 1;
}

static int write_at(struct share *share, const char *path, int flags, const uint8_t *data, size_t size, uint64_t place)
{
    struct smb2fh *file = smb2_open(share->smb2, path, flags);
    size_t piece = smb2_get_max_write_size(share->smb2), written = 0;
    if (!file)
        return fails(share, "open for writing");
    while (written < size) {
        size_t count = size - written < piece ? size - written : piece;
        int done = smb2_pwrite(share->smb2, file, data + written, (uint32_t)count, place + written);
        if (done <= 0) {
            smb2_close(share->smb2, file);
            return fails(share, "write");
        }
        written += done;
    }
    return smb2_close(share->smb2, file) == 0 || fails(share, "close");
}

static int holds(struct share *share, const char *path, const uint8_t *want, size_t size)
{
    struct smb2fh *file = smb2_open(share->smb2, path, O_RDONLY);
    uint8_t *got = malloc(size + 1);
    size_t piece = smb2_get_max_read_size(share->smb2), read = 0;
    int passes = 1, done = 1;
    if (!file) {
        free(got);
        return fails(share, "open for reading");
    }
    /* One byte more, so that a file that is too long shows. */
    while (read < size + 1 && done > 0) {
        size_t count = size + 1 - read < piece ? size + 1 - read : piece;
        done = smb2_pread(share->smb2, file, got + read, (uint32_t)count, read);
        if (done < 0)
            passes = fails(share, "read");
        else
            read += done;
    }
    smb2_close(share->smb2, file);
    if (passes && (read != size || memcmp(got, want, size) != 0))
        passes = fails(share, "the file does not hold what was written");
    free(got);
    return passes;
}

static int write_and_compare(struct share *share, const char *path, size_t size)
{
    uint8_t *data = random_bytes(size);
    int passes = write_at(share, path, O_WRONLY | O_CREAT | O_TRUNC, data, size, 0) && holds(share, path, data, size);
    free(data);
    return passes;
}

static int directories(struct share *share)
{
    if (smb2_mkdir(share->smb2, "directory") || smb2_mkdir(share->smb2, "directory/inner"))
        return fails(share, "mkdir");
    if (!has(share, "directory", "inner", 1))
        return 0;
    if (smb2_rmdir(share->smb2, "directory/inner") || smb2_rmdir(share->smb2, "directory"))
        return fails(share, "rmdir");
    return has(share, "", "directory", 0);
}

static int rename_file(struct share *share)
{
    uint8_t *data = random_bytes(100000);
    int passes = smb2_rename(share->smb2, "file", "renamed") == 0 || fails(share, "rename");
    passes = passes && has(share, "", "file", 0) && holds(share, "renamed", data, 100000);
    free(data);
    return passes;
}

static int rename_directory(struct share *share)
{
    if (smb2_mkdir(share->smb2, "old"))
        return fails(share, "mkdir");
    if (!write_at(share, "old/inside", O_WRONLY | O_CREAT, (const uint8_t *)"inside", 6, 0))
        return 0;
    if (smb2_rename(share->smb2, "old", "new"))
        return fails(share, "rename");
    return holds(share, "new/inside", (const uint8_t *)"inside", 6);
}

static int append(struct share *share)
{
    return write_at(share, "log", O_WRONLY | O_CREAT | O_TRUNC, (const uint8_t *)"first\n", 6, 0) &&
           write_at(share, "log", O_WRONLY, (const uint8_t *)"second\n", 7, 6) && holds(share, "log", (const uint8_t *)"first\nsecond\n", 13);
}

static int truncate_file(struct share *share)
{
    if (smb2_truncate(share->smb2, "log", 3))
        return fails(share, "truncate");
    return holds(share, "log", (const uint8_t *)"fir", 3);
}

static int delete_file(struct share *share)
{
    if (smb2_unlink(share->smb2, "log"))
        return fails(share, "unlink");
    return has(share, "", "log", 0);
}

static int unicode_names(struct share *share)
{
    static const char *const names[] = {"Übergrößenträger", "日本語のファイル", "Ελληνικά и русский", "emoji 🦀"};
    char path[200];
    if (smb2_mkdir(share->smb2, "unicode"))
        return fails(share, "mkdir");
    for (size_t number = 0; number < sizeof names / sizeof *names; number++) {
        snprintf(path, sizeof path, "unicode/%s", names[number]);
        if (!write_and_compare(share, path, 100 + number) || !has(share, "unicode", names[number], 1))
            return 0;
    }
    return 1;
}

static int many_names(struct share *share)
{
    char path[100];
    int is_there;
    if (smb2_mkdir(share->smb2, "many"))
        return fails(share, "mkdir");
    for (int number = 0; number < 2000; number++) {
        snprintf(path, sizeof path, "many/name-%04d", number);
        if (!write_at(share, path, O_WRONLY | O_CREAT, NULL, 0, 0))
            return 0;
    }
    if (list(share, "many", "name-1999", &is_there) != 2000 || !is_there)
        return fails(share, "not 2,000 names are listed");
    return 1;
}

static void *one_of_two(void *number)
{
    struct share share = {0};
    char path[50];
    int passes = connect_share(&share, setting("FOREIGN_SHARE"), setting("FOREIGN_PASSWORD"), 0);
    snprintf(path, sizeof path, "client-%d", (int)(intptr_t)number);
    for (int round = 0; passes && round < 50; round++)
        passes = write_and_compare(&share, path, 10000 * ((intptr_t)number + 1) + round);
    if (!passes)
        fprintf(stderr, "client %d: %s\n", (int)(intptr_t)number, share.reason);
    disconnect(&share);
    return (void *)(intptr_t)passes;
}

static int two_clients(struct share *share)
{
    pthread_t threads[2];
    void *passes[2];
    for (intptr_t number = 0; number < 2; number++)
        pthread_create(&threads[number], NULL, one_of_two, (void *)number);
    for (int number = 0; number < 2; number++)
        pthread_join(threads[number], &passes[number]);
    if (passes[0] && passes[1])
        return 1;
    snprintf(share->reason, sizeof share->reason, "a client fails");
    return 0;
}

static int wrong_password(struct share *share)
{
    char password[200];
    snprintf(password, sizeof password, "%sx", setting("FOREIGN_PASSWORD"));
    if (connect_share(share, setting("FOREIGN_SHARE"), password, 0))
        return snprintf(share->reason, sizeof share->reason, "was accepted"), 0;
    return strstr(share->reason, "LOGON_FAILURE") != NULL || strstr(share->reason, "0xc000006d") != NULL;
}

int main(void)
{
    struct share share = {0}, sealed = {0}, refused = {0};
    if (!connect_share(&share, setting("FOREIGN_SHARE"), setting("FOREIGN_PASSWORD"), 0)) {
        tell("connect", &share, 0);
        return 1;
    }
    tell("connect", &share, has(&share, "", "", 0));
    tell("directories", &share, directories(&share));
    tell("write and read back", &share, write_and_compare(&share, "file", 100000));
    tell("rename a file", &share, rename_file(&share));
    tell("rename a directory", &share, rename_directory(&share));
    tell("append", &share, append(&share));
    tell("truncate", &share, truncate_file(&share));
    tell("delete", &share, delete_file(&share));
    tell("Unicode names", &share, unicode_names(&share));
    tell("64 MiB", &share, write_and_compare(&share, "large", 64 << 20));
    tell("2,000 names", &share, many_names(&share));
    tell("encrypted", &sealed,
         connect_share(&sealed, setting("FOREIGN_SEALED"), setting("FOREIGN_PASSWORD"), 1) && write_and_compare(&sealed, "sealed", 1000000));
    tell("two clients", &share, two_clients(&share));
    tell("wrong password", &refused, wrong_password(&refused));
    disconnect(&share);
    return 0;
}
