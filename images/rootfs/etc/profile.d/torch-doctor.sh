# shellcheck shell=sh
# Debian's /etc/profile sets PATH anew for login shells, which tmux and `bash -l` start
case ":$PATH:" in
*:/opt/venv/bin:*) ;;
*) PATH=/opt/venv/bin:$PATH ;;
esac
export PATH
