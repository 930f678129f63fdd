# What Ubuntu's images have and Debian's have not; it runs after debian.sh.
set -e
command -v dpkg-deb >/dev/null || exit 0

# Debian has several of that name, and takes none without being told which.
alias_package netcat 1.218-4ubuntu1 netcat-openbsd

# Ubuntu's takes the locales as arguments, Debian's from a file alone.
mkdir -p /usr/local/sbin 2>/dev/null && [ -w /usr/local/sbin ] || exit 0
cat >/usr/local/sbin/locale-gen <<'SCRIPT'
#!/bin/sh
[ -x /usr/sbin/locale-gen ] || { echo 'locale-gen: command not found' >&2; exit 127; }
for locale; do
  case $locale in
    -*) ;;
    *.*) echo "$locale ${locale##*.}" ;;
    *) echo "$locale ISO-8859-1" ;;
  esac
done >>/etc/locale.gen
exec /usr/sbin/locale-gen
SCRIPT
chmod 755 /usr/local/sbin/locale-gen
