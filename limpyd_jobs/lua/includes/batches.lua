-- Batches: the changes of several jobs to the same list or set are sent in one command, at the end of the batch.

-- `batch` has the commands, as lists of words; `places` finds them by name and key. `pending` is what one job adds to them:
-- the command, a word…, up to `pending_size`.
local batch, places, pending, popped
local pending_size = 0

-- The nodes of flows that ended in this call, and those of the one job that is not kept yet: see flows.lua.
local ended_nodes, pending_nodes

local function begin_batch()
  batch, places, pending, popped = {}, {}, {}, {}
end

-- Changes a list or a set, with one word or two. In a batch, its type has to be probed before.
local function send(name, key, ...)
  if not batch then
    redis.call(name, key, ...)
    return
  end
  local of_name = places[name] or {}
  local command = of_name[key]
  if not command then
    command = {name, key}
    places[name], of_name[key], batch[#batch + 1] = of_name, command, command
  end
  local size, first, second = pending_size, ...
  pending[size + 1], pending[size + 2], pending_size = command, first, size + 2
  if second then pending[size + 3], pending[size + 4], pending_size = command, second, size + 4 end
end

-- Does as `send`, but if the key is of another type, the step goes on without it. In a batch, only `HSET` is sent so.
--@rarely
local function send_if_it_fits(name, key, ...)
  if batch then send(name, key, ...) else redis.pcall(name, key, ...) end
end

-- Keeps the words of one job until the end of the batch.
local function keep_pending()
  for i = 1, pending_size, 2 do
    local command = pending[i]
    command[#command + 1] = pending[i + 1]
  end
  pending_size = 0
  if pending_nodes then
    ended_nodes = ended_nodes or {}
    for _, node in ipairs(pending_nodes) do ended_nodes[#ended_nodes + 1] = node end
    pending_nodes = nil
  end
end

-- Drops the words of a job that failed.
--@rarely
local function drop_pending()
  pending_size, pending_nodes = 0, nil
end

-- The first entry of a list, without the popped ones; as LINDEX, which takes a text faster than a number.
local function first_of(key)
  local number = popped and popped[key]
  return redis.pcall('LINDEX', key, number and string.format('%d', number) or '0')
end

local function pop(key)
  if batch then
    popped[key] = (popped[key] or 0) + 1
  else
    redis.call('LPOP', key)
  end
end

-- Sends all kept commands, after which there is no batch.
local function send_batch()
  keep_pending()
  for _, command in ipairs(batch) do
    if #command > 2 then (command[1] == 'HSET' and redis.pcall or redis.call)(unpack(command)) end
  end
  for key, number in pairs(popped) do redis.call('LPOP', key, number) end
  batch, popped = nil, nil
end
