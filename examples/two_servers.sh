#!/usr/bin/env bash
# Two servers on one machine: two network namespaces with a virtual link (veth), a rank table, and a run across them.
# During the run the link is cut: both sides report it and end. The link is restored, both are started again, and the
# run continues from its last checkpoint. Needs root and iproute2.
#
#     sudo examples/two_servers.sh [FOLDER] [STEPS]
set -euo pipefail
work=${1:-two_servers}
steps=${2:-60}
python=${PYTHON:-python3}
tag=viaduct$$
north=$tag-n south=$tag-s

mkdir -p "$work"
work=$(cd "$work" && pwd)
clean_up() {
    for pid in $(jobs -rp); do kill "$pid" 2>/dev/null || true; done
    wait || true
    ip netns del "$north" 2>/dev/null || true
    ip netns del "$south" 2>/dev/null || true
}
trap clean_up EXIT

ip netns add "$north"
ip netns add "$south"
ip link add eth0 netns "$north" type veth peer name eth0 netns "$south"
ip -n "$north" addr add 10.77.0.1/24 dev eth0
ip -n "$south" addr add 10.77.0.2/24 dev eth0
for name in "$north" "$south"; do
    ip -n "$name" link set lo up
    ip -n "$name" link set eth0 up
done

"$python" -m viaduct ranktable make --servers 10.77.0.1,10.77.0.2 --devices 1 --device-ips auto --card other \
    --out "$work/rank_table_2p.json" --force

server() { # namespace, name of the log
    ip netns exec "$1" "$python" -m viaduct launch --ranktable "$work/rank_table_2p.json" --target cpu \
        --max-restarts 0 --timeout 60 -- \
        train shapes_taster --device cpu --run "$work/run" --steps "$steps" --batch 32 --save-every 5 --log-every 1 \
        --set data.train_images=640 --set data.validation_images=64 --eval-every 0 >"$work/$2.log" 2>&1
}

both() { # name of the logs; ends when both have
    server "$north" "$1-north" &
    first=$!
    server "$south" "$1-south" &
    second=$!
}

both cut
while ! compgen -G "$work/run/checkpoints/*" >/dev/null; do
    kill -0 "$first" "$second" 2>/dev/null || { cat "$work"/cut-*.log; exit 1; }
    sleep 0.2
done
echo "cutting the link"
ip -n "$north" link set eth0 down
begin=$SECONDS
for pid in "$first" "$second"; do
    if wait "$pid"; then echo "a server did not notice the cut link"; exit 1; fi
done
echo "both sides ended within $((SECONDS - begin)) seconds:"
grep -h "does not answer any more" "$work/cut-north.log" "$work/cut-south.log"

ip -n "$north" link set eth0 up
echo "the link is restored; starting both again"
both again
wait "$first" || { cat "$work/again-north.log"; exit 1; }
wait "$second" || { cat "$work/again-south.log"; exit 1; }
echo "finished: $steps steps in $work/run"
