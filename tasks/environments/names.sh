# Packages by another name: empty ones that depend on those, from a source of this root's own.
names=/var/lib/other-names
alias_package() { # name, version, what it stands for
  mkdir -p "$names/$1/DEBIAN" /etc/apt/sources.list.d
  printf '%s\n' "Package: $1" "Version: $2" 'Architecture: all' 'Maintainer: nobody <nobody@localhost>' \
    "Depends: $3" "Description: another name of $3" >"$names/$1/DEBIAN/control"
  dpkg-deb --build "$names/$1" "$names/$1.deb" >/dev/null
  rm -r "${names:?}/$1"
  { dpkg-deb --field "$names/$1.deb"
    printf '%s\n' "Filename: ./$1.deb" "Size: $(stat -c %s "$names/$1.deb")" \
      "SHA256: $(sha256sum "$names/$1.deb" | cut -d ' ' -f 1)" ''
  } >>"$names/Packages"
  echo "deb [trusted=yes] file:$names ./" >/etc/apt/sources.list.d/other-names.list
}

