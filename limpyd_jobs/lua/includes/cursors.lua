-- Cursors: the holder of a claim keeps how far the job is. These names mean the same everywhere:
--   cursor     JSON, how far each loop of the job is; or none
--   progress   JSON, the progress that follows from it; or none

--@include envelope

-- Adds how far the job is to the changes that end its claim.
local function keep_cursor(changes)
  if request.cursor then changes._cursor, changes._progress_state = request.cursor, request.progress end
  return changes
end
