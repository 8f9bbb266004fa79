# Runs as root in a guest, in the host's root: brings the network and rxe0 up, then runs the command of the job.
# /job is shared with the host: `settings` and `command` come from there, `output` and `status` go there.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
. /job/settings
hostname "$NAME"; ulimit -l unlimited; ip link set lo up
ip link show "$LINK" >/dev/null 2>&1 || ip link add "$LINK" type dummy
ip link set "$LINK" mtu 9000 up; ip address add "$ADDRESS/24" dev "$LINK"  # 9000 gives a path MTU of 4096, 1500 of 1024
rdma link add rxe0 type rxe netdev "$LINK"

# The GID that carries the address appears a moment after the address.
gid=$(printf 'ffff:%02x%02x:%02x%02x' ${ADDRESS//./ })
for _ in $(seq 50); do
  [ -e /dev/infiniband/uverbs0 ] && grep -qs "$gid" /sys/class/infiniband/rxe0/ports/1/gids/* && break
  sleep 0.1
done
cd "$FOLDER"; bash /job/command > /job/output 2>&1; echo $? > /job/status.new; mv /job/status.new /job/status
