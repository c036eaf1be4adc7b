//! What Redis does in one step: the Lua scripts of the delta log.

/// Appends the entries `ARGV[5..]` if the log still has the identity `ARGV[1]`. Keeps the entries of the last `ARGV[2]`
/// milliseconds, and of those at most `ARGV[3]` bytes. Returns the place of the last entry. If it trims for size, it
/// records the floor under the remaining entries. `ARGV[4]` is the writer if it must be admitted in the roster; an empty
/// answer says that it is not. From the first entry on there is a floor, so that a log that was deleted is noticed: the
/// floor is then at its new beginning, to the millisecond.
pub(super) const APPEND: &str = r"
local identity = redis.call('GET', KEYS[2])
if not identity or string.sub(identity, 1, 32) ~= ARGV[1] then return false end
if ARGV[4] ~= '' then
  local log, member = unpack(redis.call('HMGET', KEYS[4], 'log', ARGV[4]))
  if log ~= ARGV[1] or not member or not string.find(member, '^%d+ %d+ %d+ %d+ %d+ 1 ') then return '' end
end
local time = redis.call('TIME')
local oldest = string.format('%.0f-0', time[1] * 1000 - ARGV[2])
local id
local before = redis.call('XLEN', KEYS[1])
if redis.call('EXISTS', KEYS[1]) == 0 then
  local now = string.format('%.0f-0', time[1] * 1000 + math.floor(time[2] / 1000))
  redis.call('SET', KEYS[3], redis.call('EXISTS', KEYS[3]) == 1 and now or '0-0')
end
for i = 5, #ARGV do id = redis.call('XADD', KEYS[1], 'MINID', '~', oldest, '*', 'd', ARGV[i]) end
if redis.call('XLEN', KEYS[1]) < before + #ARGV - 4 then
  local floor = redis.call('GET', KEYS[3])
  if not floor or tonumber(string.match(floor, '^%d+')) < time[1] * 1000 - ARGV[2] then redis.call('SET', KEYS[3], oldest) end
end
if redis.call('MEMORY', 'USAGE', KEYS[1]) > tonumber(ARGV[3]) then
  redis.call('XTRIM', KEYS[1], 'MAXLEN', math.floor(redis.call('XLEN', KEYS[1]) * 0.9))
  local first = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
  redis.call('SET', KEYS[3], first and first[1] or id)
end
return id";

/// Records that `ARGV[1]` is alive now, and removes instances that were silent for `ARGV[2]` milliseconds, and all but
/// the latest `ARGV[3]`. `KEYS[2]` is the identity of the log, which must be `ARGV[4]`: registrations of one log say
/// nothing about another.
pub(super) const REGISTER: &str = r"
local identity = redis.call('GET', KEYS[2])
if not identity or string.sub(identity, 1, 32) ~= ARGV[4] then return false end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now - ARGV[2]))
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -ARGV[3] - 1)
return 1";

/// Records that the namespace `ARGV[1]` announces rows of this backend. Returns all that did so within `ARGV[2]`
/// milliseconds.
pub(super) const NAMESPACE: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now - ARGV[2]))
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -65)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZRANGE', KEYS[1], 0, -1)";

/// Stores the switch `ARGV[2]` unless there is a later one. With `ARGV[1] = 'new'` its serial is higher than the stored
/// one, than serial `ARGV[3]`, and than all others that this server's clock numbered; otherwise it keeps its serial.
/// Returns the serial. A switch in an unknown form stays.
pub(super) const SWITCH: &str = r"
local held = redis.call('GET', KEYS[1])
local last = -1
if held then
  last = tonumber(string.match(held, '^v1 (%d+) '))
  if not last then return redis.error_reply('ERR the stored switch has another form: is a later version of bloomguard writing it?') end
end
local serial = tonumber(ARGV[3])
if ARGV[1] == 'new' then
  local time = redis.call('TIME')
  serial = math.max(time[1] * 1000000 + time[2], serial + 1, last + 1)
end
local text = string.format('%.0f', serial)
if serial > last then redis.call('SET', KEYS[1], 'v1 ' .. text .. ' ' .. ARGV[2]) end
return text";

/// The contents of one page, read at one moment: identity, clock, last entry, entries ever appended, floor, entries
/// behind `ARGV[1]`, switch, instances with other terms than `ARGV[3]`, with the time, the roster unless it still has
/// the version `ARGV[4]`, and whether the instance `ARGV[5]` is registered. A replica has no identity, because it may
/// lack entries. Neither has a server that was a replica since the connection was made: its history is another one. The
/// floor of a log that is gone is the end of every log.
pub(super) const READ: &str = r"
local replication, identity = redis.call('INFO', 'replication'), false
local history = string.match(replication, 'master_replid:(%x+)')
if string.find(replication, 'role:master', 1, true) and history and string.sub(KEYS[2], -#history) == history then
  identity = redis.call('GET', KEYS[2])
end
local time = redis.call('TIME')
local last, made, entries, floor = '0-0', 0, {}, redis.call('GET', KEYS[3])
if redis.call('EXISTS', KEYS[1]) == 1 then
  local info = redis.call('XINFO', 'STREAM', KEYS[1])
  made = nil
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then last = info[i + 1] end
    if info[i] == 'entries-added' then made = info[i + 1] end
  end
  if not made then return redis.error_reply('ERR the delta log needs Redis 7.0 or later') end
  entries = redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+', 'COUNT', ARGV[2])
end
if floor and redis.call('EXISTS', KEYS[1]) == 0 then floor = '18446744073709551615-0' end
local peers, strangers, own, registered = {}, 0, 0, redis.call('ZRANGE', KEYS[5], 0, -1, 'WITHSCORES')
for i = 1, #registered, 2 do
  local is_alive = tonumber(registered[i + 1]) > time[1] * 1000 - 60000
  if is_alive and string.sub(registered[i], -7) ~= ' enrols' then strangers = 1 end
  if string.match(registered[i], '^v1 (%x+) ') == ARGV[5] then own = 1 end
  if string.match(registered[i], '^v1 %x+ (%x+ %x+ %d+ %d+)') ~= ARGV[3] then
    peers[#peers + 1] = {registered[i], string.format('%.0f', registered[i + 1])}
  end
end
local roster = false
local log, view, version, born = unpack(redis.call('HMGET', KEYS[6], 'log', 'view', 'version', 'born'))
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
if not identity or log ~= string.sub(identity, 1, 32) then view, version, born = '0', '0', now end
local members = version ~= '0'
version = tostring(identity) .. ' ' .. (members and born or '') .. ' ' .. version .. ' ' .. strangers
if version ~= ARGV[4] then
  roster = {version, view, members and redis.call('HGETALL', KEYS[6]) or {}, strangers, born}
end
local switch = redis.call('GET', KEYS[4])
return {identity, time[1], time[2], last, made, floor or '0-0', entries, switch, peers, roster, own}";

/// A change of the roster `KEYS[1]` by the member `ARGV[2]`, if the log `KEYS[2]` still has the identity `ARGV[1]`. A
/// roster of another log is empty. Who was admitted in the log before is admitted at once, but only in a young log: later,
/// a scan may have made others forget it. `ARGV[3]` is the change, the others its arguments. Returns the own member as it is
/// after that. A member is `lease window serial confirmed view
/// admitted reported`.
pub(super) const ROSTER: &str = r"
local identity = redis.call('GET', KEYS[2])
if not identity or string.sub(identity, 1, 32) ~= ARGV[1] then return false end
local roster, own, change = KEYS[1], ARGV[2], ARGV[3]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('HGET', roster, 'log') ~= ARGV[1] then
  if change ~= 'enrol' then return '' end
  redis.call('DEL', roster)
  redis.call('HSET', roster, 'log', ARGV[1], 'view', 0, 'version', 0, 'born', string.format('%.0f', now))
end
local function changed() redis.call('HINCRBY', roster, 'version', 1) end
local member = redis.call('HGET', roster, own)
if change == 'remove' then
  local other = redis.call('HGET', roster, ARGV[4])
  if other and string.match(other, '^%d+ %d+ (%d+)') == ARGV[5] then redis.call('HDEL', roster, ARGV[4]) changed() end
  return member or ''
end
if change == 'leave' then
  if redis.call('HDEL', roster, own) == 1 then changed() end
  return ''
end
if not member and change ~= 'enrol' then return '' end
local lease, window, serial, confirmed, view, admitted, reported
if member then
  lease, window, serial, confirmed, view, admitted, reported =
    string.match(member, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  if not lease then return redis.error_reply('ERR the roster has another form: is a later version of bloomguard writing it?') end
end
if change == 'enrol' then
  if member then
    serial = serial + 1
    if lease ~= ARGV[4] or window ~= ARGV[5] then changed() end
  else
    view = redis.call('HINCRBY', roster, 'view', 1)
    local born = string.match(identity, ':(%d+)') * 1000
    local is_young = now < born + tonumber(ARGV[4])
    serial, admitted, reported = 1, is_young and ARGV[7] or 0, 0
    changed()
  end
  lease, window, confirmed = ARGV[4], ARGV[5], ARGV[6]
elseif change == 'admit' then
  admitted = 1
  changed()
elseif change == 'report' then
  reported = 1
  changed()
end
member = string.format('%.0f %.0f %.0f %.0f %.0f %d %d', lease, window, serial, confirmed, view, admitted, reported)
redis.call('HSET', roster, own, member)
return member";
