-- Output: what the code of a job emits, in a stream beside it, `_output`. The id of a chunk is the number of the run that
-- emitted it, among those that did, and its number in that run, such as '2-17'. Its only field is `value`, JSON; or, of the
-- entry that the end of the job adds, `end`, the status.
--
-- `_emitted`, in the hash, says how far the output is: the number of the run; the number of its last entry; how many
-- entries there are, and how many bytes of values; for how many milliseconds they are kept after the end of the job; the
-- token of the claim of the run. See append_output.lua, and `end_output` in records.lua.

-- How many entries one look reads of those that are too many: they may be long.
local SOME_ENTRIES = 10

--@rarely
local function output_key(name, pk)
  return name .. ':' .. pk .. ':_output'
end

--@rarely
local function chunk_id(run, number)
  return string.format('%.0f-%.0f', run, number)
end

-- What `_emitted` says; nil if it is not set, or another program wrote something else there.
--@rarely
local function output_from(text)
  local run, number, size, bytes, kept_for, token = string.match(text or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
  return run and {
    run = tonumber(run), number = tonumber(number), size = tonumber(size), bytes = tonumber(bytes), kept_for = kept_for,
    token = token,
  }
end

--@rarely
local function stored_output(output)
  return string.format(
    '%.0f %.0f %.0f %.0f %s %s', output.run, output.number, output.size, output.bytes, output.kept_for, output.token)
end

-- The output of a new run, whose ids follow all that are there.
--@rarely
local function run_after(key, before, token)
  local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  local run = math.max(before and before.run or 0, last and tonumber(string.match(last[1], '^%d+')) or 0) + 1
  return {run = run, number = 0, size = last and before and before.size or 0, bytes = last and before and before.bytes or 0, token = token}
end

-- How many bytes the value of an entry has.
--@rarely
local function bytes_of(entry)
  return entry[2][1] == 'value' and #entry[2][2] or 0
end

-- Drops the first entries while there are too many, or too many bytes.
--@rarely
local function drop_first(key, output, most, most_bytes)
  while output.size > most or output.bytes > most_bytes do
    local entries = redis.call('XRANGE', key, '-', '+', 'COUNT', SOME_ENTRIES)
    if not entries[1] then
      output.size, output.bytes = 0, 0
      return
    end
    local dropped = {}
    for _, entry in ipairs(entries) do
      if output.size <= most and output.bytes <= most_bytes then break end
      dropped[#dropped + 1] = entry[1]
      output.size, output.bytes = output.size - 1, output.bytes - bytes_of(entry)
    end
    redis.call('XDEL', key, unpack(dropped))
  end
end

--@rarely
local function keep_last(key, output, most, most_bytes)
  if output.size > most or output.bytes > most_bytes then drop_first(key, output, most, most_bytes) end
end
