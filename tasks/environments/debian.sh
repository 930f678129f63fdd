# Brings a Debian root nearer to the images of Debian and Ubuntu: what the maintainers' scripts of packages made on a
# new system, and no package's list of files names. Whatever is there already stays as it is.
set -e
export DEBIAN_FRONTEND=noninteractive
there() { [ -e "$1" ] || [ -L "$1" ]; }
there /etc/profile || ! there /usr/share/base-files/profile || cp /usr/share/base-files/profile /etc/profile
there /etc/nsswitch.conf || ! there /usr/share/libc-bin/nsswitch.conf ||
  cp /usr/share/libc-bin/nsswitch.conf /etc/nsswitch.conf
there /etc/environment || : >/etc/environment
there /etc/pam.d/common-auth || ! command -v pam-auth-update >/dev/null || pam-auth-update --package --force
# As in the images: apt fetches no translations and no desktop's metadata, and installing a service does not start it.
rm -f /etc/apt/apt.conf.d/20packagekit /etc/apt/apt.conf.d/50appstream
[ ! -d /etc/apt/apt.conf.d ] || echo 'Acquire::Languages "none";' >/etc/apt/apt.conf.d/docker-no-languages
there /usr/sbin/policy-rc.d || [ ! -w /usr/sbin ] || { printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d; }

# No image has services, and their set-up by this host was not taken along: apt shall install them anew.
set_up_here() {
  for script in /etc/init.d/*; do dpkg-query -S "$script" 2>/dev/null || true; done | cut -d : -f 1 | sort -u |
    while read -r package; do
      case $package-$(dpkg-query -W -f '${Priority}' "$package") in
        dbus-* | util-linux-* | x11-common-* | *-required | *-important) ;;
        *) echo "$package" ;;
      esac
    done
}
if command -v apt-get >/dev/null; then
  rm -f /var/lib/dpkg/updates/*  # where the host was installing something at that moment
  for package in $(set_up_here); do apt-get purge -y "$package" >/dev/null 2>&1 || true; done
fi

# The Node.js of another source than the distribution's has an npm of its own, and bars the distribution's.
case $(dpkg-query -W -f '${Version}' nodejs 2>/dev/null) in
  *nodesource*)
    sed -i '/^Package: nodejs$/,/^$/{/^\(Conflicts\|Breaks\|Replaces\):/d}' /var/lib/dpkg/status
    alias_package npm 99 nodejs ;;
esac
