-- Batches: the changes of several jobs to the same list or set are sent in one command, at the end of the batch.

local batch, pending, popped

local function begin_batch()
  batch, pending, popped = {}, {}, {}
end

-- Changes a list or a set, with any number of arguments. In a batch, its type has to be probed before.
local function send(command, key, ...)
  if batch then
    pending[#pending + 1] = {command, key, ...}
  else
    redis.call(command, key, ...)
  end
end

-- Keeps the commands of one job until the end of the batch.
local function keep_pending()
  for _, parts in ipairs(batch and pending or {}) do
    local name = parts[1] .. parts[2]
    local kept = batch[name]
    if kept then
      for i = 3, #parts do kept[#kept + 1] = parts[i] end
    else
      batch[name] = parts
      batch[#batch + 1] = parts
    end
  end
  pending = {}
end

-- Drops the commands of a job that failed.
local function drop_pending()
  pending = {}
end

-- The first entry of a list, without the popped ones; as LINDEX.
local function first_of(key)
  return redis.pcall('LINDEX', key, popped and popped[key] or 0)
end

local function pop(key)
  if batch then
    popped[key] = (popped[key] or 0) + 1
  else
    redis.call('LPOP', key)
  end
end

-- Sends all kept commands. The batch goes on.
local function end_batch()
  if batch then
    keep_pending()
    for _, parts in ipairs(batch) do redis.call(unpack(parts)) end
    for key, number in pairs(popped) do redis.call('LPOP', key, number) end
    begin_batch()
  end
end
